//! Open pools: thread, opening, closing.

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use zc_io::{BlockFile, EventFd, OpenOptions};
use zc_pool::RequestKind;
use zc_store::Config;

use crate::client::{Input, PoolClient};
use crate::device::Device;
use crate::error::OpenError;
use crate::server::{self, Server};
use crate::workers::Workers;

/// Settings of running a pool.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Settings of the store.
    pub store: Config,
    /// Threads that hash, compress and decode; 0: the pool's own thread does.
    pub workers: u32,
    /// Direct I/O. `None`: for block devices, not for files.
    pub direct: Option<bool>,
    /// Read-only: writes stay in memory and are discarded with the pool.
    pub look_only: bool,
}

/// Open pool. Dropping it closes it and logs failures.
#[derive(Debug)]
pub struct OpenPool {
    path: PathBuf,
    client: PoolClient,
    thread: Option<JoinHandle<()>>,
}

impl OpenPool {
    /// Locks the file or device, recovers the pool, and makes a first checkpoint. Blocks.
    ///
    /// # Errors
    /// When it is in use, holds no pool, or cannot be recovered.
    pub fn open(path: &Path, settings: Settings) -> Result<Self, OpenError> {
        let is_block = std::fs::metadata(path)
            .is_ok_and(|metadata| std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type()));
        let direct = settings.direct.unwrap_or(is_block);
        let file = BlockFile::open(path, OpenOptions { direct, write: true, create_len: None })?;
        let event = EventFd::new()?;
        let client = PoolClient { inbox: Arc::new(Mutex::new(Some(Vec::new()))), waker: event.waker() };
        let workers = Workers::start(settings.workers, &event.waker())?;
        let (sender, opened) = sync_channel(1);
        let inbox = Arc::clone(&client.inbox);
        let store = settings.store;
        let run = move || {
            let _closed_at_the_end = server::Closing(Arc::clone(&inbox));
            let server = Device::new(file, event, settings.look_only)
                .and_then(|device| Server::new(device, store, workers, inbox, sender.clone()));
            match server {
                Ok(server) => server.run(),
                Err(error) => {
                    let _opener_left = sender.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(run);
        let thread = Some(thread.map_err(OpenError::Thread)?);
        let pool = Self { path: path.to_owned(), client, thread };
        match opened.recv() {
            Ok(Ok(())) => Ok(pool),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(OpenError::Gone { path: path.to_owned() }),
        }
    }

    /// Returns a handle for requests.
    #[must_use]
    pub const fn client(&self) -> &PoolClient {
        &self.client
    }

    /// The file or device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Completes pending requests, makes everything durable, and releases the device. Blocks.
    ///
    /// # Errors
    /// When the last changes cannot be made durable.
    pub fn close(mut self) -> Result<(), OpenError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), OpenError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // A stop reports completion, not success: the result of the flush shows whether all changes are durable.
        let flushed = self.client.ask(RequestKind::Sync);
        self.client.send(Input::Stop);
        if thread.join().is_err() {
            return Err(OpenError::Gone { path: self.path.clone() });
        }
        flushed.map(|_| ()).map_err(|error| OpenError::Flush { path: self.path.clone(), error })
    }
}

impl Drop for OpenPool {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("{error}");
        }
    }
}
