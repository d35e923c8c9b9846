use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::Moment;

/// The sessions of one client: what they leave behind is its own to delete.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// By number; with a session that the client has left, until when the servers may keep its nodes.
    sessions: Mutex<HashMap<i64, Option<Moment>>>,
}

/// A session that the client has not left yet.
#[derive(Debug)]
pub(crate) struct Membership {
    own: Arc<Own>,
    id: i64,
    timeout: Duration,
}

impl Own {
    /// Counts a session in, and those out that the servers have ended by now.
    pub(crate) fn join(self: &Arc<Self>, id: i64, timeout: Duration) -> Membership {
        let now = Moment::now();
        let mut sessions = self.sessions();
        sessions.retain(|_, end| end.is_none_or(|end| end > now));
        sessions.insert(id, None);
        Membership { own: self.clone(), id, timeout }
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.sessions().contains_key(&id)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<i64, Option<Moment>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // If the servers do not hear of its end, they wait for its timeout; a new leader counts that anew.
        let end = Moment::now() + self.timeout * 2;
        self.own.sessions().insert(self.id, Some(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_counts_until_the_servers_have_ended_it() {
        let own = Arc::<Own>::default();
        let (brief, lasting) = (own.join(1, Duration::ZERO), own.join(2, Duration::from_hours(1)));
        let _open = own.join(3, Duration::ZERO);
        drop((brief, lasting));
        let _another = own.join(4, Duration::ZERO);
        let counted = [1, 2, 3, 4].map(|id| own.contains(id));
        assert_eq!(counted, [false, true, true, true]);
    }
}
