//! Recovery of devices whose process is gone.

use std::time::Duration;

use rustix::event::Timespec;

use crate::control::Controller;
use crate::error::UblkError;
use crate::limits::QUIESCE_MS;
use crate::options::{DeviceInfo, DeviceState};

/// Polling interval in milliseconds.
const LOOK_MS: u64 = 20;

/// State of the process that serves a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// The process runs.
    Alive,
    /// No process exists any more.
    Gone,
}

/// Returns the state of the process that serves a device.
#[must_use]
pub fn holder_of(info: &DeviceInfo) -> ProcessState {
    match std::fs::read_to_string(format!("/proc/{}/stat", info.pid)) {
        // The state follows the name in parentheses: a zombie serves nothing.
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
    // An early wake-up only causes an early poll.
    let _woken = rustix::event::poll(&mut [], time.ok().as_ref());
}

impl Controller {
    /// Takes over a device whose process is gone: waits until the kernel has detected it, and starts the recovery.
    /// `None`: the device was stopped or removed in the meantime.
    ///
    /// # Errors
    /// When the kernel does not detect it in time, the process lives, or the kernel refuses.
    pub fn take_over(&mut self, id: u32) -> Result<Option<DeviceInfo>, UblkError> {
        for _ in 0..QUIESCE_MS / LOOK_MS {
            let Some(info) = self.info(id)? else { return Ok(None) };
            match info.state {
                DeviceState::Dead => return Ok(None),
                DeviceState::Quiesced | DeviceState::FailIo => match self.begin_recovery(id) {
                    Ok(()) => return Ok(Some(info)),
                    // Some files of the previous process are still open.
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

    /// Stops a device whose process is gone or exiting: its requests fail.
    ///
    /// # Errors
    /// When the process keeps running, or the kernel refuses.
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

    /// Returns all devices.
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
