//! Simulation state that device operations use besides the device itself.

use crate::drawn::Faults;
use crate::env::Env;
use crate::excuses::Excuses;
use crate::kept::Kept;
use crate::memory::Memory;
use crate::models::Models;
use crate::promise::Promise;
use crate::state::StateDir;
use crate::trouble::Trouble;

/// Parts of the machine that devices read, and to which they report faults.
pub(crate) struct Bench<'a> {
    pub(crate) env: &'a mut Env,
    pub(crate) faults: &'a mut Faults,
    pub(crate) trouble: &'a mut Trouble,
    pub(crate) memory: &'a mut Memory,
    pub(crate) state: &'a mut StateDir,
    pub(crate) models: &'a mut Models,
    pub(crate) excuses: &'a mut Excuses,
    pub(crate) kept: &'a mut Kept,
    pub(crate) promise: &'a mut Promise,
}
