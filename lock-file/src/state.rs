//! What a state file says: three pages of 4,096 bytes.
//!
//! | page | holds | written |
//! | --- | --- | --- |
//! | 0, 1 | the newest grants with an even and an odd token: name, token, owner, label, boot id | before a grant returns, and synced |
//! | 2 | the lease of the newest grant: token, liveness file, end on the boot clock | after that, by renewals and by the release; not synced |
//!
//! A loss of power can tear only the page that is being written. Torn is then either a grant that never
//! returned, with the one before it whole in the other page; or a lease, which means nothing after a boot.
//! A page of zeros was never written. A page is `polylock 1`, a checksum, a line of JSON, and spaces.

use lock_core::{Claim, Moment, Owner};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::encode::hex;

/// The size of a page: smaller than or equal to a page of memory, which a killed writer cannot tear.
pub(crate) const PAGE: usize = 4096;
/// The size of a state file.
pub(crate) const SIZE: usize = 3 * PAGE;
/// Where the lease is.
pub(crate) const LEASE_PAGE: usize = 2;

const MAGIC: &str = "polylock 1";

/// What was never written.
static ZEROS: [u8; SIZE] = [0; SIZE];

/// A lock that was given to somebody; who holds it now is up to the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) owner: String,
    pub(crate) label: String,
    /// The id of the boot in which it was given: no holder outlives it.
    pub(crate) boot: String,
}

impl Grant {
    pub(crate) fn new(claim: &Claim, token: u64, boot: &str) -> Self {
        Self {
            name: claim.name.as_str().into(),
            token,
            owner: claim.owner.to_hex(),
            // Core's labels are no longer; a page must hold any.
            label: claim.label.chars().take(64).collect(),
            boot: boot.into(),
        }
    }

    /// The page where a grant with this token stands.
    pub(crate) fn page(&self) -> usize {
        usize::from(self.token % 2 == 1)
    }
}

/// Until when the newest grant holds, unless its process dies before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) token: u64,
    /// The liveness file of the process that last proved the claim.
    pub(crate) process: String,
    /// Nanoseconds on the boot clock; 0 when it was released.
    pub(crate) until: u64,
}

impl Lease {
    pub(crate) fn new(token: u64, process: &str, until: Moment) -> Self {
        let until = u64::try_from(until.since_start().as_nanos()).unwrap_or(u64::MAX);
        Self { token, process: process.into(), until }
    }

    pub(crate) fn released(token: u64) -> Self {
        Self { token, process: String::new(), until: 0 }
    }

    fn until(&self) -> Moment {
        Moment::from_start(std::time::Duration::from_nanos(self.until))
    }
}

/// Who holds the lock, if its process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: Owner,
    pub(crate) label: String,
    pub(crate) token: u64,
    pub(crate) process: String,
    pub(crate) until: Moment,
}

/// What is wrong with a state file.
pub(crate) type Corrupt = &'static str;

/// A state file, read.
#[derive(Debug)]
pub(crate) struct State {
    newest: Option<Grant>,
    torn: bool,
    lease: Page<Lease>,
}

#[derive(Debug, PartialEq)]
enum Page<T> {
    Empty,
    Whole(T),
    Damaged,
}

impl State {
    /// Reads a state file; an empty one says that nothing was ever granted.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        if bytes.len() != SIZE {
            // A creator that was killed at work leaves zeros.
            let unmade = ZEROS[..SIZE - 1].starts_with(bytes);
            let nothing = Self { newest: None, torn: false, lease: Page::Empty };
            return if unmade { Ok(nothing) } else { Err("it is not a state file of polylock's") };
        }
        let page = |index: usize| &bytes[index * PAGE..(index + 1) * PAGE];
        let grant = |index| match Page::<Grant>::read(page(index)) {
            Page::Whole(grant) if grant.page() != index => Page::Damaged,
            other => other,
        };
        let (newest, torn) = match (grant(0), grant(1)) {
            (Page::Damaged, Page::Damaged) => return Err("both of its grant pages are damaged"),
            (Page::Whole(even), Page::Whole(odd)) => {
                (Some(if even.token > odd.token { even } else { odd }), false)
            }
            (Page::Whole(one), other) | (other, Page::Whole(one)) => (Some(one), other == Page::Damaged),
            // Grants begin with token 1.
            (Page::Damaged, Page::Empty) => return Err("its grant page is damaged"),
            (Page::Empty, other) => (None, other == Page::Damaged),
        };
        Ok(Self { newest, torn, lease: Page::read(page(LEASE_PAGE)) })
    }

    /// Whether nothing was ever granted.
    pub(crate) fn is_new(&self) -> bool {
        self.newest.is_none() && !self.torn
    }

    /// Whose name it is.
    pub(crate) fn name(&self) -> Option<&str> {
        self.newest.as_ref().map(|grant| &*grant.name)
    }

    /// The token of the next grant; `None` when there is none left.
    ///
    /// Beside a damaged page it skips two: should the damage not be a torn write but a bad disk, then the
    /// lost token was one of these. Three steps on, it takes the damaged page's place.
    pub(crate) fn next_token(&self) -> Option<u64> {
        let step = if self.torn { 3 } else { 1 };
        self.newest.as_ref().map_or(0, |grant| grant.token).checked_add(step)
    }

    /// Who holds the lock at this moment of this boot.
    pub(crate) fn holder(&self, boot: &str, now: Moment) -> Result<Option<Holder>, Corrupt> {
        let newest = self.newest.as_ref();
        if let Page::Whole(lease) = &self.lease
            && lease.token > newest.map_or(0, |grant| grant.token)
        {
            // A lease is written after its grant is durable: the grant's page was damaged later.
            return Err("its newest grant is damaged");
        }
        let Some(grant) = newest.filter(|grant| grant.boot == boot) else { return Ok(None) };
        let lease = match &self.lease {
            Page::Damaged => return Err("its lease is damaged"),
            Page::Empty => return Ok(None),
            Page::Whole(lease) => lease,
        };
        // With an older lease the newest grant never returned: its writer died in between.
        if lease.token != grant.token || lease.until() <= now {
            return Ok(None);
        }
        Ok(Some(Holder {
            owner: Owner::from_hex(&grant.owner).ok_or("its owner is not one of polylock's")?,
            label: grant.label.clone(),
            token: grant.token,
            process: lease.process.clone(),
            until: lease.until(),
        }))
    }
}

impl<T: DeserializeOwned> Page<T> {
    fn read(page: &[u8]) -> Self {
        if ZEROS.starts_with(page) {
            return Self::Empty;
        }
        parse(page).map_or(Self::Damaged, Self::Whole)
    }
}

/// A record as a page.
pub(crate) fn page(record: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let record = serde_json::to_string(record)?;
    let mut page = format!("{MAGIC} {} {record}\n", checksum(&record)).into_bytes();
    page.resize(PAGE - 1, b' ');
    page.push(b'\n');
    Ok(page)
}

fn parse<T: DeserializeOwned>(page: &[u8]) -> Option<T> {
    let text = str::from_utf8(page).ok()?;
    let (sum, record) = text.strip_prefix(MAGIC)?.trim_start().split_once(' ')?;
    let (record, blank) = record.split_once('\n')?;
    let is_whole = blank.strip_suffix('\n')?.as_bytes() == vec![b' '; blank.len() - 1];
    (is_whole && sum == checksum(record)).then(|| serde_json::from_str(record).ok())?
}

fn checksum(record: &str) -> String {
    hex(&Sha256::digest(record)[..8])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::Name;

    use super::*;

    const BOOT: &str = "5f6a7f2e-0000-4000-8000-000000000001";
    const OTHER_BOOT: &str = "5f6a7f2e-0000-4000-8000-000000000002";

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn grant(token: u64) -> Grant {
        let name = Name::new(r#"a "quoted" nämé"#).unwrap();
        let claim = Claim::new(name, Owner::from_bytes([7; 16]), Duration::from_secs(9)).labelled("host:1");
        Grant::new(&claim, token, BOOT)
    }

    /// A file in which these tokens were granted, and the last one leased until second 100.
    fn file(tokens: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        for &token in tokens {
            write(&mut bytes, grant(token).page(), &page(&grant(token)).unwrap());
            write(&mut bytes, LEASE_PAGE, &page(&Lease::new(token, "cafe", at(100))).unwrap());
        }
        bytes
    }

    fn write(bytes: &mut [u8], index: usize, page: &[u8]) {
        bytes[index * PAGE..][..PAGE].copy_from_slice(page);
    }

    /// Half of the page is new, the other half what was there.
    fn tear(bytes: &mut [u8], index: usize) {
        bytes[index * PAGE + 60..][..40].fill(0);
    }

    fn holder(bytes: &[u8]) -> Result<Option<u64>, Corrupt> {
        Ok(State::read(bytes)?.holder(BOOT, at(50))?.map(|holder| holder.token))
    }

    fn next(bytes: &[u8]) -> Option<u64> {
        State::read(bytes).unwrap().next_token()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = file(&[1, 2, 3]);
        let state = State::read(&bytes).unwrap();
        assert_eq!(state.name(), Some(r#"a "quoted" nämé"#));
        let expected = Holder {
            owner: Owner::from_bytes([7; 16]),
            label: "host:1".into(),
            token: 3,
            process: "cafe".into(),
            until: at(100),
        };
        assert_eq!(state.holder(BOOT, at(99)), Ok(Some(expected)));
        assert_eq!(state.next_token(), Some(4));
    }

    #[test]
    fn an_empty_or_unfinished_file_was_never_granted() {
        for bytes in [vec![], vec![0; 100], vec![0; PAGE], vec![0; SIZE]] {
            let state = State::read(&bytes).unwrap();
            assert!(state.is_new());
            assert_eq!((state.holder(BOOT, at(0)), state.next_token()), (Ok(None), Some(1)));
        }
    }

    #[test]
    fn a_lease_ends_by_time_by_release_and_by_boot() {
        let mut bytes = file(&[1, 2]);
        let state = State::read(&bytes).unwrap();
        assert!(state.holder(BOOT, at(99)).unwrap().is_some());
        assert_eq!(state.holder(BOOT, at(100)), Ok(None));
        assert_eq!(state.holder(OTHER_BOOT, at(0)), Ok(None));
        write(&mut bytes, LEASE_PAGE, &page(&Lease::released(2)).unwrap());
        assert_eq!((holder(&bytes), next(&bytes)), (Ok(None), Some(3)));
    }

    #[test]
    fn a_grant_without_its_lease_never_returned_and_keeps_its_token() {
        let mut bytes = file(&[1, 2]);
        write(&mut bytes, 1, &page(&grant(3)).unwrap());
        assert_eq!((holder(&bytes), next(&bytes)), (Ok(None), Some(4)));
    }

    #[test]
    fn a_torn_grant_gives_no_token_twice() {
        let mut first = vec![0; SIZE];
        write(&mut first, 1, &page(&grant(1)).unwrap());
        tear(&mut first, 1);
        assert_eq!((holder(&first), next(&first)), (Ok(None), Some(3)));

        let mut later = file(&[4, 5]);
        write(&mut later, 0, &page(&grant(6)).unwrap());
        tear(&mut later, 0);
        assert_eq!((holder(&later), next(&later)), (Ok(Some(5)), Some(8)));
    }

    #[test]
    fn damage_is_never_taken_for_a_free_lock() {
        let both = {
            let mut bytes = file(&[4, 5]);
            tear(&mut bytes, 0);
            tear(&mut bytes, 1);
            bytes
        };
        let newest = {
            let mut bytes = file(&[4, 5]);
            tear(&mut bytes, 1);
            bytes
        };
        let only = {
            let mut bytes = file(&[1]);
            tear(&mut bytes, 1);
            bytes
        };
        let lease = {
            let mut bytes = file(&[4, 5]);
            tear(&mut bytes, LEASE_PAGE);
            bytes
        };
        let swapped = {
            let mut bytes = file(&[4, 5]);
            bytes.copy_within(PAGE..2 * PAGE, 0);
            bytes
        };
        let mut longer = file(&[1]);
        longer.push(0);
        for bytes in [both, newest, only, lease, longer, b"somebody else's".to_vec(), vec![b'x'; SIZE]] {
            assert!(holder(&bytes).is_err(), "{:?}", State::read(&bytes));
        }
        assert_eq!(next(&swapped), Some(8));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let page = page(&Lease::new(5, "cafe", at(100))).unwrap();
        for index in (0..200).chain([PAGE - 2]) {
            let mut page = page.clone();
            page[index] ^= 1 << (index % 8);
            let read = Page::<Lease>::read(&page);
            assert!(read == Page::Damaged, "byte {index}");
        }
    }

    #[test]
    fn the_last_token_is_the_last() {
        assert_eq!(next(&file(&[u64::MAX])), None);
    }

    #[test]
    fn the_longest_record_fits_its_page() {
        let name = Name::new("\"".repeat(255)).unwrap();
        let claim =
            Claim::new(name, Owner::from_bytes([0; 16]), Duration::ZERO).labelled("\u{1}".repeat(999));
        let page = page(&Grant::new(&claim, u64::MAX, BOOT)).unwrap();
        assert!(page.len() == PAGE && page.ends_with(b" \n"));
    }
}
