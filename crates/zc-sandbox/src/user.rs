//! User that the daemon assumes.
//!
//! It does not query name services. Users come from /etc/passwd, or are numbers.

use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid};

use crate::SandboxError;

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// The user does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no user \"{0}\" in /etc/passwd; make one with `useradd --system {0}`, or name the numbers as \"UID:GID\""
)]
pub struct NoUser(pub String);

impl User {
    /// Returns the user of this name, or of these numbers: `zcached`, `990:990`.
    ///
    /// # Errors
    /// When no such user exists.
    pub fn find(name: &str) -> Result<Self, NoUser> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::in_files(name, &read("/etc/passwd"), &read("/etc/group")).ok_or_else(|| NoUser(name.to_owned()))
    }

    fn in_files(name: &str, passwd: &str, group: &str) -> Option<Self> {
        if let Some((uid, gid)) = name.split_once(':') {
            return Some(Self { uid: number(uid)?, gid: number(gid)?, groups: Vec::new() });
        }
        let entry = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = entry.split(':').skip(2);
        let (uid, gid) = (number(fields.next()?)?, number(fields.next()?)?);
        let member = |line: &str| {
            let mut fields = line.split(':').skip(2);
            let id = number(fields.next()?)?;
            fields.next()?.split(',').any(|member| member == name).then_some(id)
        };
        Some(Self { uid, gid, groups: group.lines().filter_map(member).collect() })
    }

    /// Returns `true` if the user is root.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn assume(&self) -> Result<(), SandboxError> {
        if rustix::process::geteuid().as_raw() == self.uid {
            return Ok(());
        }
        let fail = |error: rustix::io::Errno| SandboxError::User { user: self.uid, source: error.into() };
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        set_thread_groups(&groups).map_err(fail)?;
        set_thread_res_gid(gid, gid, gid).map_err(fail)?;
        set_thread_res_uid(uid, uid, uid).map_err(fail)?;
        if self.uid != 0 && set_thread_uid(Uid::ROOT).is_ok() {
            return Err(SandboxError::WayBack { user: self.uid });
        }
        Ok(())
    }
}

/// Parses the number of a user or a group; the largest one means "unchanged" in system calls.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number != u32::MAX)
}

impl From<NoUser> for io::Error {
    fn from(error: NoUser) -> Self {
        Self::new(io::ErrorKind::NotFound, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nzcached:x:990:980::/:/usr/sbin/nologin\nbad:x\n";
    const GROUP: &str = "root:x:0:\ndisk:x:6:zcached,other\nkvm:x:104:other\nbad\nzc:x:7:zcached\n";

    #[test]
    fn users_are_found_by_name_with_their_groups_and_by_numbers() {
        let found = |name| User::in_files(name, PASSWD, GROUP);
        assert_eq!(found("zcached"), Some(User { uid: 990, gid: 980, groups: vec![6, 7] }));
        assert_eq!(found("17:18"), Some(User { uid: 17, gid: 18, groups: Vec::new() }));
        assert!(found("root").unwrap().is_root());
        for name in ["", "zc", "bad", "17", "17:", "4294967295:1", "-1:1"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
