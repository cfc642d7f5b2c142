//! The process behind a device, and waiting for the one before to be gone.

use std::time::Duration;

use rustix::event::Timespec;

use crate::control::Controller;
use crate::error::UblkError;
use crate::limits::QUIESCE_MS;
use crate::options::{DeviceInfo, DeviceState};

/// Between two looks.
const LOOK_MS: u64 = 20;

/// What the process behind a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// The process runs.
    Alive,
    /// There is no process any more.
    Gone,
}

/// The process behind a device.
#[must_use]
pub fn holder_of(info: &DeviceInfo) -> ProcessState {
    match std::fs::read_to_string(format!("/proc/{}/stat", info.pid)) {
        // Behind the name, in parentheses, is the state: a zombie serves nothing.
        Ok(stat) if info.pid > 0 => {
            match stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next()) {
                Some('Z' | 'X') | None => ProcessState::Gone,
                Some(_) => ProcessState::Alive,
            }
        }
        _ => ProcessState::Gone,
    }
}

fn pause() {
    let time = Timespec::try_from(Duration::from_millis(LOOK_MS));
    // An early end only means an early look.
    let _woken = rustix::event::poll(&mut [], time.ok().as_ref());
}

impl Controller {
    /// Takes a device over whose process is gone: waits until the kernel has noticed, and begins. `None`: the device
    /// was stopped or removed meanwhile.
    ///
    /// # Errors
    /// When the kernel does not notice in time, the process lives, or the kernel refuses.
    pub fn take_over(&mut self, id: u32) -> Result<Option<DeviceInfo>, UblkError> {
        for _ in 0..QUIESCE_MS / LOOK_MS {
            let Some(info) = self.info(id)? else { return Ok(None) };
            match info.state {
                DeviceState::Dead => return Ok(None),
                DeviceState::Quiesced | DeviceState::FailIo => match self.begin_recovery(id) {
                    Ok(()) => return Ok(Some(info)),
                    // The files of the process before are not all closed.
                    Err(error) if error.errno() == Some(libc::EBUSY) => {}
                    Err(error) => return Err(error),
                },
                DeviceState::Live | DeviceState::Other(_) if holder_of(&info) == ProcessState::Alive => {
                    let text = format!("{} is served by process {}", info.path(), info.pid);
                    return Err(UblkError::Invalid(text));
                }
                DeviceState::Live | DeviceState::Other(_) => {}
            }
            pause();
        }
        Err(UblkError::TimedOut { what: "let go of", place: format!("ublk device {id}"), ms: QUIESCE_MS })
    }

    /// Stops a device whose process is gone, or goes: its requests end with errors.
    ///
    /// # Errors
    /// When the process lives on, or the kernel refuses.
    pub fn fail(&mut self, id: u32) -> Result<(), UblkError> {
        let mut served_by = String::new();
        for _ in 0..QUIESCE_MS / LOOK_MS {
            let Some(info) = self.info(id)? else { return Ok(()) };
            if holder_of(&info) == ProcessState::Gone {
                return self.stop(id);
            }
            served_by = format!("{} is served by process {}", info.path(), info.pid);
            pause();
        }
        Err(UblkError::Invalid(served_by))
    }

    /// Every device there is.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn list(&mut self) -> Result<Vec<DeviceInfo>, UblkError> {
        let mut devices = Vec::new();
        for id in crate::registration::device_numbers()? {
            devices.extend(self.info(id)?);
        }
        Ok(devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pid: i32) -> DeviceInfo {
        DeviceInfo {
            id: 0,
            queues: 1,
            depth: 1,
            request_bytes_max: 4096,
            state: DeviceState::Live,
            pid,
            flags: 0,
            stamp: 0,
        }
    }

    #[test]
    fn the_living_are_told_from_the_dead() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(holder_of(&info(own)), ProcessState::Alive);
        assert_eq!(holder_of(&info(0)), ProcessState::Gone);
        assert_eq!(holder_of(&info(-1)), ProcessState::Gone);
        assert_eq!(holder_of(&info(i32::MAX)), ProcessState::Gone);
    }
}
