//! Drops privileges before the daemon serves: user, capabilities, files, system calls.
//!
//! Job: execute a [`Plan`] on the calling thread, and report the result in [`Held`]. Steps, in order: capabilities
//! leave the bounding set; user and groups change; the other capabilities are dropped; executed programs gain no
//! rights (`PR_SET_NO_NEW_PRIVS`); Landlock restricts files and TCP ports; seccomp restricts system calls.
//!
//! Invariants: called while the process has one thread; later threads inherit all restrictions. None can be undone. A
//! step that the kernel refuses is an error if it is [`Requirement::Required`], and a note otherwise; a user that
//! cannot be assumed is always an error.
//!
//! It does not read the configuration. seccomp does not cover operations of an io_uring, which the kernel executes
//! without a system call of their own. Landlock and capabilities cover those as well.
#![forbid(unsafe_code)]

mod calls;
mod capabilities;
mod files;
mod user;

use std::io;

pub use capabilities::Capability;
pub use files::Folders;
pub use user::{NoUser, User};

/// Requirement level of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// Skipped.
    Off,
    /// Applied if the kernel allows it.
    Auto,
    /// Applied, or the start fails.
    Required,
}

/// Restrictions to apply.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The user to become, if not the present one.
    pub user: Option<User>,
    /// Level of dropping capabilities,
    pub capabilities: Requirement,
    /// except these, if no user is assumed.
    pub keep: Vec<Capability>,
    /// Level of restricting files and TCP ports with Landlock.
    pub landlock: Requirement,
    /// Level of restricting system calls with seccomp.
    pub seccomp: Requirement,
}

/// Restrictions in force, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// User id.
    pub uid: u32,
    /// Remaining capabilities, without `CAP_`.
    pub capabilities: Vec<&'static str>,
    /// Executed programs gain no rights.
    pub no_new_privileges: bool,
    /// Files and ports are restricted.
    pub landlock: bool,
    /// System calls are restricted.
    pub seccomp: bool,
    /// Steps that were refused, and other information for the operator.
    pub notes: Vec<String>,
}

/// Failure that prevents the start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A user cannot be assumed.
    #[error("cannot become the user {user}: {source}; start the daemon as root, or as that user")]
    User {
        /// The user.
        user: u32,
        /// Cause.
        source: io::Error,
    },
    /// Root could be regained after the change of user.
    #[error(
        "the user {user} was assumed and root could be regained; this kernel does not drop root's saved ids"
    )]
    WayBack {
        /// The user.
        user: u32,
    },
    /// A step that is required was refused.
    #[error("sandbox.{step} is \"required\", but this system refuses it: {why}")]
    Refused {
        /// The key of the step.
        step: &'static str,
        /// Cause.
        why: String,
    },
}

/// Sandbox under construction.
#[derive(Debug)]
pub struct Sandbox {
    plan: Plan,
    held: Held,
}

impl Sandbox {
    /// Applies the first part: user and capabilities. Later files and sockets belong to that user.
    ///
    /// # Errors
    /// The user cannot be assumed, or a required step is refused.
    pub fn enter(plan: Plan) -> Result<Self, SandboxError> {
        let mut this = Self { plan, held: Held::default() };
        let keep = if this.plan.user.is_some() { &[][..] } else { &this.plan.keep };
        let bounded = (this.plan.capabilities != Requirement::Off).then(|| capabilities::bound(keep));
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

    /// Applies the second part: executed programs gain nothing, files and system calls are restricted.
    ///
    /// # Errors
    /// A required step is refused.
    pub fn close(mut self, folders: &Folders) -> Result<Held, SandboxError> {
        if self.plan.landlock != Requirement::Off || self.plan.seccomp != Requirement::Off {
            // Landlock and seccomp require it of processes without root.
            let done = rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string());
            self.held.no_new_privileges = done.is_ok();
            self.note("seccomp", self.plan.seccomp, done)?;
        }
        if self.plan.landlock != Requirement::Off {
            let done = files::restrict(folders, &mut self.held.notes);
            self.held.landlock = done.is_ok();
            self.note("landlock", self.plan.landlock, done)?;
        }
        if self.plan.seccomp != Requirement::Off {
            let done = calls::filter();
            self.held.seccomp = done.is_ok();
            self.note("seccomp", self.plan.seccomp, done)?;
        }
        Ok(self.held)
    }

    fn note(
        &mut self,
        step: &'static str,
        wanted: Requirement,
        done: Result<(), String>,
    ) -> Result<(), SandboxError> {
        match done {
            Err(why) if wanted == Requirement::Required => Err(SandboxError::Refused { step, why }),
            Err(why) => {
                self.held.notes.push(format!("{step}: {why}; the daemon goes on without it"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
