use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use lock_core::Wake;
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

use crate::{directory::Directory, liveness::Processes};

/// Tells waiters that a state file was written or that a process died: one inotify instance for all of
/// them, set up when somebody first waits.
///
/// It listens to writes, not to the opening and closing of state files: a waiter that looks again does
/// not wake the others.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    ears: Arc<Ears>,
    watcher: Mutex<Option<RecommendedWatcher>>,
    warned: OnceLock<()>,
}

impl Watch {
    /// Listens from now on to the state of a lock and to the death of a process. `None` if the system
    /// has no more notifications to give.
    pub(crate) fn listen(
        &self,
        locks: &Directory,
        processes: &Arc<Processes>,
        file: &str,
        process: &str,
    ) -> Option<Ear> {
        let mut watcher = lock(&self.watcher);
        if watcher.is_none() {
            *watcher = start(&self.ears, locks, processes).map_err(|error| self.warn(&error)).ok();
        }
        watcher.as_ref()?;
        Some(Ears::add(&self.ears, [Source::State(file.into()), Source::Process(process.into())]))
    }

    fn warn(&self, error: &notify::Error) {
        self.warned.get_or_init(|| {
            tracing::warn!(%error, "no file notifications: waiters poll (see /proc/sys/fs/inotify for the limits)");
        });
    }
}

fn start(
    ears: &Arc<Ears>,
    locks: &Directory,
    processes: &Arc<Processes>,
) -> notify::Result<RecommendedWatcher> {
    let (state_path, process_path) = (locks.own_path(), processes.directory().own_path());
    let (ears, processes) = (ears.clone(), processes.clone());
    let mut watcher = notify::recommended_watcher({
        let (state_path, process_path) = (state_path.clone(), process_path.clone());
        move |event: notify::Result<Event>| {
            let Some(event) = event.ok().filter(|event| !event.need_rescan()) else {
                return ears.wake_all();
            };
            let Some(path) = event.paths.first() else { return };
            let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
            else {
                return;
            };
            match event.kind {
                EventKind::Modify(_) | EventKind::Remove(_) if folder == state_path => {
                    ears.wake(&Source::State(name.into()));
                }
                // Nobody but the process itself opens its file for writing.
                EventKind::Access(AccessKind::Close(AccessMode::Write))
                    if folder == process_path && processes.dies(name) =>
                {
                    ears.wake(&Source::Process(name.into()));
                }
                _ => {}
            }
        }
    })?;
    watcher.watch(&state_path, RecursiveMode::NonRecursive)?;
    watcher.watch(&process_path, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    heard: Arc<Notify>,
    sources: [Source; 2],
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

/// What can be heard: a state file, or a liveness file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    State(String),
    Process(String),
}

#[derive(Debug, Default)]
struct Ears(Mutex<HashMap<Source, Vec<Weak<Notify>>>>);

impl Ears {
    fn add(ears: &Arc<Self>, sources: [Source; 2]) -> Ear {
        let heard = Arc::new(Notify::new());
        let mut by_source = lock(&ears.0);
        for source in &sources {
            by_source.entry(source.clone()).or_default().push(Arc::downgrade(&heard));
        }
        drop(by_source);
        Ear { heard, sources, ears: ears.clone() }
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

    fn wake(&self, source: &Source) {
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
