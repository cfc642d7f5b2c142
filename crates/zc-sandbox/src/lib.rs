//! What the daemon gives up before it serves: another user, capabilities, files, system calls.
//!
//! Job: take a [`Plan`], carry it out on the calling thread, and say in [`Held`] what holds from then on. The steps, in
//! their order: capabilities leave the bounding set; user and groups change; the other capabilities go; no program that
//! is executed gains rights (`PR_SET_NO_NEW_PRIVS`); Landlock bounds files and TCP ports; seccomp bounds system calls.
//!
//! Invariants: called while the process has one thread; threads that start later inherit all of it. Nothing of it can be
//! taken back. A step that the kernel refuses is an error if it is [`Step::Required`], and a note otherwise; a user that
//! cannot be assumed is always an error.
//!
//! What it does not do: know the configuration. What seccomp does not reach: the operations of an io_uring, which the
//! kernel carries out without a system call of their own. Landlock and capabilities hold for those as well.
#![forbid(unsafe_code)]

mod calls;
mod capabilities;
mod files;
mod user;

use std::io;

pub use capabilities::Capability;
pub use files::Folders;
pub use user::{NoUser, User};

/// How much a step is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Not at all.
    Off,
    /// If the kernel lets it.
    Auto,
    /// Or there is no start.
    Required,
}

/// What is to be given up.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The user to become, if not the present one.
    pub user: Option<User>,
    /// Give up capabilities,
    pub capabilities: Step,
    /// but for these, if no user is assumed.
    pub keep: Vec<Capability>,
    /// Bound files and TCP ports with Landlock.
    pub landlock: Step,
    /// Bound system calls with seccomp.
    pub seccomp: Step,
}

/// What holds from now on, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// Number of the user.
    pub uid: u32,
    /// Capabilities that are left, without `CAP_`.
    pub capabilities: Vec<&'static str>,
    /// Executed programs gain no rights.
    pub no_new_privileges: bool,
    /// Files and ports are bounded.
    pub landlock: bool,
    /// System calls are bounded.
    pub seccomp: bool,
    /// Steps that were refused, and what else an operator should know.
    pub notes: Vec<String>,
}

/// Why there is no start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A user cannot be assumed.
    #[error("cannot become the user {user}: {source}; start the daemon as root, or as that user")]
    User {
        /// The user.
        user: u32,
        /// Why.
        source: io::Error,
    },
    /// After the change of user the way back was open.
    #[error("the user {user} was assumed and root could be taken back; this kernel does not keep them apart")]
    WayBack {
        /// The user.
        user: u32,
    },
    /// A step that is required was refused.
    #[error("sandbox.{step} is \"required\", and cannot be done here: {why}")]
    Refused {
        /// The key of the step.
        step: &'static str,
        /// Why.
        why: String,
    },
}

/// A sandbox that is being built.
#[derive(Debug)]
pub struct Sandbox {
    plan: Plan,
    held: Held,
}

impl Sandbox {
    /// The first part: user and capabilities. What is opened and made afterwards is that user's.
    ///
    /// # Errors
    /// The user cannot be assumed, or a required step is refused.
    pub fn enter(plan: Plan) -> Result<Self, SandboxError> {
        let mut this = Self { plan, held: Held::default() };
        let keep = if this.plan.user.is_some() { &[][..] } else { &this.plan.keep };
        let bounded = (this.plan.capabilities != Step::Off).then(|| capabilities::bound(keep));
        if let Some(user) = &this.plan.user {
            user.assume()?;
        }
        if let Some(bounded) = bounded {
            let given_up = bounded.and_then(|()| capabilities::keep_only(keep));
            this.note("capabilities", this.plan.capabilities, given_up.map_err(|error| error.to_string()))?;
        }
        this.held.uid = rustix::process::geteuid().as_raw();
        this.held.capabilities = capabilities::left();
        Ok(this)
    }

    /// The second part: executed programs gain nothing, files and system calls are bounded.
    ///
    /// # Errors
    /// A required step is refused.
    pub fn close(mut self, folders: &Folders) -> Result<Held, SandboxError> {
        if self.plan.landlock != Step::Off || self.plan.seccomp != Step::Off {
            // Both need it of those who are not root.
            let done = rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string());
            self.held.no_new_privileges = done.is_ok();
            self.note("seccomp", self.plan.seccomp, done)?;
        }
        if self.plan.landlock != Step::Off {
            let done = files::restrict(folders, &mut self.held.notes);
            self.held.landlock = done.is_ok();
            self.note("landlock", self.plan.landlock, done)?;
        }
        if self.plan.seccomp != Step::Off {
            let done = calls::filter();
            self.held.seccomp = done.is_ok();
            self.note("seccomp", self.plan.seccomp, done)?;
        }
        Ok(self.held)
    }

    fn note(
        &mut self,
        step: &'static str,
        wanted: Step,
        done: Result<(), String>,
    ) -> Result<(), SandboxError> {
        match done {
            Err(why) if wanted == Step::Required => Err(SandboxError::Refused { step, why }),
            Err(why) => {
                self.held.notes.push(format!("{step}: {why}; the daemon goes on without it"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
