//! Commands about recordings.
//!
//! Invariants: a volume has one recording at a time, all volumes together a bounded number. A file is newly created,
//! never overwritten, readable by the daemon's user alone. Users of the control socket choose the path: that user, or
//! root.
//!
//! It does not record; see `record`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_recording::{Header, Share};

use crate::control::Shared;
use crate::limits::{RECORD_BYTES_DEFAULT, RECORD_BYTES_MIN, RECORDINGS_MAX};
use zc_engine::clock::unix_s;
use zc_engine::record::Progress;
use zc_engine::record::recorder::{self, Recorder};
use zc_engine::shard::commands::Command;

#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) volume: String,
    pub(crate) path: PathBuf,
    pub(crate) share: Option<String>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) duration_ms: Option<u64>,
}

/// Recordings by volume: running ones, and the last ended one of each.
pub(crate) type Recordings = std::collections::BTreeMap<String, Recorder>;

impl Wanted {
    fn progress(&self) -> Result<Progress, String> {
        let share = self.share.as_deref().map_or(Ok(Share::WHOLE), str::parse)?;
        let max_bytes = self.max_bytes.unwrap_or(RECORD_BYTES_DEFAULT);
        if max_bytes < RECORD_BYTES_MIN {
            return Err(format!("a recording has at least {RECORD_BYTES_MIN} bytes"));
        }
        if !self.path.is_absolute() {
            return Err(format!("{} is not an absolute path", self.path.display()));
        }
        Ok(Progress::new(self.path.clone(), share, max_bytes, self.duration_ms))
    }
}

impl Shared {
    /// The settings of a volume that are in force.
    pub(crate) async fn volume_config(&self, name: &str) -> Result<VolumeConfig, String> {
        let in_force = self.settings().await?;
        let volume = in_force.volumes.iter().find(|(known, _)| known == name);
        volume.map(|(_, config)| config.clone()).ok_or_else(|| format!("there is no volume \"{name}\""))
    }

    /// Begins to record a volume.
    pub(crate) async fn record_start(&self, wanted: Wanted) -> Result<Value, String> {
        let config = self.volume_config(&wanted.volume).await?;
        let progress = wanted.progress()?;
        let mut recordings = self.recordings.lock().await;
        let running = |recorder: &Recorder| !recorder.progress.has_ended();
        if recordings.get(&wanted.volume).is_some_and(running) {
            return Err(format!("volume \"{}\" is being recorded", wanted.volume));
        }
        if recordings.values().filter(|recorder| running(recorder)).count() >= RECORDINGS_MAX {
            return Err(format!("{RECORDINGS_MAX} volumes are being recorded, which is the most at a time"));
        }
        let header = Header {
            extent_bytes: self.extent_bytes,
            volume_bytes: config.size_bytes,
            share: progress.share,
            began_s: unix_s(),
        };
        let clock = self.clock;
        let begun = tokio::task::spawn_blocking(move || {
            let file = recorder::create(&progress.path)
                .map_err(|error| format!("cannot make the file {}: {error}", progress.path.display()))?;
            recorder::start(file, &header, progress, clock).map_err(|error| error.to_string())
        });
        let (tap, recorder) =
            begun.await.map_err(|_| "the start of the recording was interrupted".to_owned())??;
        let progress = recorder.progress.to_json(&wanted.volume);
        recordings.insert(wanted.volume.clone(), recorder);
        let (reply, done) = oneshot::channel();
        self.mailbox.send(Command::Record { volume: config.id, tap: Some(tap), reply });
        done.await.map_err(|_| "the data plane is busy or has ended".to_owned())?;
        tracing::info!("volume \"{}\" is being recorded to {}", wanted.volume, wanted.path.display());
        Ok(progress)
    }

    /// Ends a volume's recording, and waits until the file is complete. A recording that has already ended is reported
    /// once.
    pub(crate) async fn record_stop(&self, name: &str) -> Result<Value, String> {
        let volume = self.id_of(name)?;
        let mut recordings = self.recordings.lock().await;
        let mut recorder = match recordings.remove(name) {
            Some(recorder) if recorder.thread.is_some() => recorder,
            ended => {
                let mut why = format!("volume \"{name}\" is not being recorded");
                if let Some(ended) = ended {
                    why += &format!("; its last recording is {}", ended.progress.path.display());
                    recordings.insert(name.to_owned(), ended);
                }
                return Err(why);
            }
        };
        recorder.progress.asked.store(true, Ordering::Relaxed);
        let (reply, done) = oneshot::channel();
        self.mailbox.send(Command::Record { volume, tap: None, reply });
        let answer = done.await;
        if answer.is_ok() {
            let joined = tokio::task::spawn_blocking(move || {
                recorder.join();
                recorder
            });
            recorder = joined.await.map_err(|_| "the end of the recording was interrupted".to_owned())?;
        }
        let progress = Arc::clone(&recorder.progress);
        recordings.insert(name.to_owned(), recorder);
        answer.map_err(|_| "the data plane is busy or has ended".to_owned())?;
        Ok(progress.to_json(name))
    }

    /// Recordings that run, and the last of each volume that ended.
    pub(crate) async fn record_status(&self) -> Value {
        let recordings = self.recordings.lock().await;
        let all: Vec<Value> =
            recordings.iter().map(|(name, recorder)| recorder.progress.to_json(name)).collect();
        json!({ "recordings": all })
    }

    /// Waits for the files of all recordings after the data plane has ended.
    pub(crate) async fn end_recordings(&self) {
        let mut recordings = std::mem::take(&mut *self.recordings.lock().await);
        recordings.values_mut().for_each(Recorder::join);
    }
}
