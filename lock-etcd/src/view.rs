use std::collections::HashMap;

use etcd_client::{Event, EventType, KeyValue};

/// The keys of one queue as a watch tells of them, each with the revision that made it.
///
/// It begins with a linearizable list, read while the watch was there already; the watch tells every change
/// after that, in the server's order. Revisions only grow, so no key can ever come in front of one that is
/// there: a claim that was the first once is the first for as long as its key lives. Only that is concluded
/// from a view, and it is true of an old one as well. Whether the key still lives is for its lease to say.
#[derive(Debug)]
pub(crate) struct View {
    made: HashMap<Vec<u8>, i64>,
    /// Everything up to this revision is known.
    revision: i64,
}

/// Where a key stands in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not known: it was made after what the view knows.
    Unseen,
    /// It is the oldest.
    First,
    /// Another one is older.
    Behind,
    /// It was there, and is not any more.
    Gone,
}

impl View {
    /// All keys of the queue, read at this revision.
    pub(crate) fn new(keys: &[KeyValue], revision: i64) -> Self {
        let made = keys.iter().map(|kv| (kv.key().to_vec(), kv.create_revision())).collect();
        Self { made, revision }
    }

    /// Takes in what the watch says; nothing twice.
    pub(crate) fn hear(&mut self, events: &[Event]) {
        let known = self.revision;
        for event in events {
            let Some(kv) = event.kv().filter(|kv| kv.mod_revision() > known) else { continue };
            let created = (event.event_type() == EventType::Put).then_some(kv.create_revision());
            self.change(kv.key(), created, kv.mod_revision());
        }
    }

    /// At this revision the key was written, made by that one, or deleted.
    fn change(&mut self, key: &[u8], created: Option<i64>, revision: i64) {
        match created {
            Some(created) => self.made.insert(key.to_vec(), created),
            None => self.made.remove(key),
        };
        self.revision = self.revision.max(revision);
    }

    /// Where the key stands that this revision made.
    pub(crate) fn place(&self, key: &str, created: i64) -> Place {
        if created > self.revision {
            Place::Unseen
        } else if self.made.get(key.as_bytes()) != Some(&created) {
            Place::Gone
        } else if self.made.values().any(|&made| made < created) {
            Place::Behind
        } else {
            Place::First
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two keys in the queue, made by the revisions 3 and 5, and everything known up to 6.
    fn view() -> View {
        let made = [(b"a".to_vec(), 3), (b"b".to_vec(), 5)].into();
        View { made, revision: 6 }
    }

    #[test]
    fn a_key_is_the_first_when_the_last_older_one_is_gone() {
        let mut view = view();
        assert_eq!(view.place("c", 7), Place::Unseen);
        view.change(b"c", Some(7), 7);
        assert_eq!(["a", "b", "c"].map(|key| view.place(key, view.made[key.as_bytes()])), {
            [Place::First, Place::Behind, Place::Behind]
        });
        // Whoever waits in the middle may go at any time: that brings nobody to the front.
        view.change(b"b", None, 8);
        assert_eq!(view.place("c", 7), Place::Behind);
        view.change(b"a", None, 9);
        assert_eq!(view.place("c", 7), Place::First);
        view.change(b"d", Some(10), 10);
        assert_eq!(view.place("c", 7), Place::First);
    }

    #[test]
    fn a_key_that_was_made_again_is_not_the_same_claim() {
        let mut view = view();
        view.change(b"b", None, 7);
        assert_eq!(view.place("b", 5), Place::Gone);
        view.change(b"b", Some(8), 8);
        assert_eq!((view.place("b", 5), view.place("b", 8)), (Place::Gone, Place::Behind));
    }

    #[test]
    fn a_key_that_was_only_written_again_keeps_its_place() {
        let mut view = view();
        view.change(b"a", Some(3), 7);
        assert_eq!((view.place("a", 3), view.place("b", 5)), (Place::First, Place::Behind));
    }
}
