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
            match event.event_type() {
                EventType::Put => self.made.insert(kv.key().to_vec(), kv.create_revision()),
                EventType::Delete => self.made.remove(kv.key()),
            };
            self.revision = self.revision.max(kv.mod_revision());
        }
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
