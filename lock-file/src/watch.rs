use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use lock_core::Wake;
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use rustix::fs::OFlags;
use tokio::sync::Notify;

use crate::liveness::{Processes, is_id};

/// Tells waiters that a lock was released or that a process died: one inotify instance for all of them,
/// set up when somebody first waits.
///
/// It listens to a directory in which nothing happens but that: a release opens and closes an empty file
/// there, and the file of a process is closed there by its end. The state files are elsewhere, so that
/// a thousand waiters who look again do not wake each other.
#[derive(Debug)]
pub(crate) struct Watch {
    processes: Arc<Processes>,
    ears: Arc<Ears>,
    watcher: Mutex<Option<RecommendedWatcher>>,
    warned: OnceLock<()>,
}

impl Watch {
    pub(crate) fn new(processes: Arc<Processes>) -> Self {
        Self { processes, ears: Arc::default(), watcher: Mutex::default(), warned: OnceLock::new() }
    }

    /// Tells everybody who listens to this state file that it was released.
    pub(crate) fn tell(&self, file: &str) {
        if let Err(error) = self.processes.listened().file(file, OFlags::WRONLY | OFlags::CREATE) {
            tracing::debug!(%error, "waiters were not told of a release; they look again by themselves");
        }
    }

    /// Listens from now on to the release of a lock and to the death of a process. `None` if the system
    /// has no more notifications to give.
    pub(crate) fn listen(&self, file: &str, process: &str) -> Option<Ear> {
        let mut watcher = lock(&self.watcher);
        if watcher.is_none() {
            *watcher = self.start().map_err(|error| self.warn(&error)).ok();
        }
        watcher.as_ref()?;
        Some(Ears::add(&self.ears, [file.into(), process.into()]))
    }

    fn start(&self) -> notify::Result<RecommendedWatcher> {
        let (ears, processes) = (self.ears.clone(), self.processes.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let Some(event) = event.ok().filter(|event| !event.need_rescan()) else {
                return ears.wake_all();
            };
            // Nobody but the process itself opens its file for writing.
            if let EventKind::Access(AccessKind::Close(AccessMode::Write)) = event.kind
                && let Some(name) = event.paths.first().and_then(|path| path.file_name()?.to_str())
                && ears.is_for(name)
                && (!is_id(name) || processes.dies(name))
            {
                ears.wake(name);
            }
        })?;
        watcher.watch(&self.processes.listened().own_path(), RecursiveMode::NonRecursive)?;
        Ok(watcher)
    }

    fn warn(&self, error: &notify::Error) {
        self.warned.get_or_init(|| {
            tracing::warn!(%error, "no file notifications: waiters poll (see /proc/sys/fs/inotify for the limits)");
        });
    }
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    heard: Arc<Notify>,
    sources: [String; 2],
    ears: Arc<Ears>,
}

impl Ear {
    /// Makes the wake resolve at once.
    pub(crate) fn ring(&self) {
        self.heard.notify_one();
    }

    /// Resolves when something was heard since the listening began.
    pub(crate) fn into_wake(self) -> Wake {
        Box::pin(async move {
            self.heard.notified().await;
            None
        })
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.ears.remove(self);
    }
}

/// Who listens to what: the names of state files, and of processes.
#[derive(Debug, Default)]
struct Ears(Mutex<HashMap<String, Vec<Weak<Notify>>>>);

impl Ears {
    fn add(ears: &Arc<Self>, sources: [String; 2]) -> Ear {
        let heard = Arc::new(Notify::new());
        let mut by_source = lock(&ears.0);
        for source in &sources {
            by_source.entry(source.clone()).or_default().push(Arc::downgrade(&heard));
        }
        drop(by_source);
        Ear { heard, sources, ears: ears.clone() }
    }

    /// Whether anybody listens to it.
    fn is_for(&self, source: &str) -> bool {
        lock(&self.0).contains_key(source)
    }

    fn remove(&self, ear: &Ear) {
        let mut by_source = lock(&self.0);
        for source in &ear.sources {
            if let Some(listening) = by_source.get_mut(source) {
                listening.retain(|heard| !std::ptr::eq(heard.as_ptr(), Arc::as_ptr(&ear.heard)));
                if listening.is_empty() {
                    by_source.remove(source);
                }
            }
        }
    }

    fn wake(&self, source: &str) {
        for heard in lock(&self.0).get(source).into_iter().flatten().filter_map(Weak::upgrade) {
            heard.notify_one();
        }
    }

    fn wake_all(&self) {
        for heard in lock(&self.0).values().flatten().filter_map(Weak::upgrade) {
            heard.notify_one();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
