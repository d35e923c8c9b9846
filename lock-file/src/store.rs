use std::{fs, sync::Weak, time::Duration};

use lock_core::{
    Attempt, Busy, Claim, Error, ErrorKind, Fault, FencingToken, Grant, Guarantees, Lease, Moment, Released,
    Renewal, Result,
};

use crate::{
    FileOptions,
    directory::Directory,
    encode,
    file_system::FileSystem,
    liveness::Liveness,
    state::{self, Holder, State},
    state_file::{Effort, StateFile},
    watch::{Ear, Watch},
};

/// The verbs, blocking: each does its work under the kernel's lock on the name's state file.
#[derive(Debug)]
pub(crate) struct Store {
    directory: Directory,
    file_system: FileSystem,
    boot: String,
    liveness: Liveness,
    watch: Watch,
}

impl Store {
    pub(crate) fn open(options: &FileOptions) -> Result<Self> {
        let directory = Directory::open(options.directory())?;
        let file_system = directory.file_system(options.network())?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|e| {
            let text = "/proc/sys/kernel/random/boot_id cannot be read; without it a reboot would go unseen";
            Error::new(ErrorKind::Unsupported, text).with_source(e)
        })?;
        let liveness = Liveness::show(&directory)?;
        let watch = Watch::new(liveness.processes().clone());
        Ok(Self { directory, file_system, boot: boot.trim_end().into(), liveness, watch })
    }

    pub(crate) fn guarantees(&self) -> Guarantees {
        let mut guarantees = crate::guarantees();
        if self.file_system == FileSystem::Disk {
            guarantees.fencing = guarantees.fencing.with(Fault::ServerRestart);
        }
        guarantees
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    pub(crate) fn acquire(&self, claim: &Claim, wanted: Weak<()>) -> Result<Attempt> {
        let file = encode::file_name(&claim.name);
        let mut effort = effort(claim, wanted);
        let unarmed = match self.look(claim, &file, &mut effort)? {
            Look::Held(grant) => return Ok(Attempt::Held(grant)),
            Look::Busy(holder) => holder,
        };
        if !claim.queue {
            return Ok(Attempt::Busy(Busy::new(None, recheck(&unarmed))));
        }
        let ear = self.watch.listen(&file, &unarmed.process);
        let armed = match self.look(claim, &file, &mut effort)? {
            Look::Held(grant) => return Ok(Attempt::Held(grant)),
            Look::Busy(holder) => holder,
        };
        if let Some(ear) = &ear
            && armed.process != unarmed.process
        {
            // It listens to a process that no longer holds: look once more.
            ear.ring();
        }
        Ok(Attempt::Busy(Busy::new(ear.map(Ear::into_wake), recheck(&armed))))
    }

    pub(crate) fn renew(&self, claim: &Claim, wanted: Weak<()>) -> Result<Renewal> {
        let file = encode::file_name(&claim.name);
        let mut effort = effort(claim, wanted);
        let Some((locked, state)) = self.lock_existing(&file, &mut effort)? else {
            return Ok(Renewal::Lost);
        };
        let since = Moment::now();
        match self.holder(claim, &locked, &state, since)? {
            Some(holder) if holder.owner == claim.owner => {
                effort.still_wanted()?;
                Ok(Renewal::Kept(self.keep(claim, &locked, holder.token, since)?))
            }
            _ => Ok(Renewal::Lost),
        }
    }

    pub(crate) fn release(&self, claim: &Claim, wanted: Weak<()>) -> Result<Released> {
        let file = encode::file_name(&claim.name);
        let mut effort = effort(claim, wanted);
        let Some((locked, state)) = self.lock_existing(&file, &mut effort)? else {
            return Ok(Released::Absent);
        };
        match self.holder(claim, &locked, &state, Moment::now())? {
            Some(holder) if holder.owner == claim.owner => {
                effort.still_wanted()?;
                locked.write_lease(&state::Lease::released(holder.token))?;
                // Without the kernel's lock in the way of those who are told.
                drop(locked);
                self.watch.tell(&file);
                Ok(Released::Released)
            }
            _ => Ok(Released::Absent),
        }
    }

    /// Takes the lock if it is free, or keeps it; else tells who has it.
    fn look(&self, claim: &Claim, file: &str, effort: &mut Effort) -> Result<Look> {
        let (locked, state) = loop {
            let opened = StateFile::open_or_create(&self.directory, file)?;
            // The first look leaves the kernel's lock to those who have something to write. What it
            // cannot understand, it may have seen half written.
            if let Ok(state) = opened.read()
                && let Ok(Some(holder)) = self.holder(claim, &opened, &state, Moment::now())
                && holder.owner != claim.owner
            {
                return Ok(Look::Busy(holder));
            }
            if opened.try_lock(effort)? {
                let state = opened.read()?;
                break (opened, state);
            }
        };
        // Under the lock and before the write: both sides count the lease from here.
        let since = Moment::now();
        let token = match self.holder(claim, &locked, &state, since)? {
            Some(holder) if holder.owner != claim.owner => return Ok(Look::Busy(holder)),
            Some(holder) => holder.token,
            None => {
                effort.still_wanted()?;
                self.grant(claim, &locked, &state)?
            }
        };
        // To make the grant durable may have taken long. Without a lease it is none.
        effort.still_wanted()?;
        let lease = self.keep(claim, &locked, token, since)?;
        Ok(Look::Held(Grant::new(FencingToken::new(token), lease)))
    }

    /// Who holds the lock. A dead process's claim is nobody's any more but its owner's.
    fn holder(
        &self,
        claim: &Claim,
        opened: &StateFile<'_>,
        state: &State,
        now: Moment,
    ) -> Result<Option<Holder>> {
        if let Some(other) = state.name().filter(|name| *name != claim.name.as_str()) {
            return Err(opened.foreign(&format!("it belongs to the lock {other:?}")));
        }
        let holder = state.holder(&self.boot, now).map_err(|corrupt| opened.foreign(corrupt))?;
        Ok(holder.filter(|holder| {
            holder.owner == claim.owner || !self.liveness.processes().is_dead(&holder.process)
        }))
    }

    /// Gives the lock to a claim. The new count is durable when this returns.
    fn grant(&self, claim: &Claim, locked: &StateFile<'_>, state: &State) -> Result<u64> {
        let token = state.next_token().ok_or_else(|| locked.foreign("its fencing counter is used up"))?;
        if state.is_new() {
            locked.make()?;
        }
        locked.write_grant(&state::Grant::new(claim, token, &self.boot))?;
        Ok(token)
    }

    /// Binds the claim to this process for a further lease.
    fn keep(&self, claim: &Claim, locked: &StateFile<'_>, token: u64, since: Moment) -> Result<Lease> {
        let lease = Lease::new(since, claim.lease);
        locked.write_lease(&state::Lease::new(token, self.liveness.id(), lease.end()))?;
        Ok(lease)
    }

    fn lock_existing<'a>(
        &'a self,
        file: &'a str,
        effort: &mut Effort,
    ) -> Result<Option<(StateFile<'a>, State)>> {
        loop {
            let Some(opened) = StateFile::open(&self.directory, file)? else { return Ok(None) };
            if opened.try_lock(effort)? {
                let state = opened.read()?;
                return Ok(Some((opened, state)));
            }
        }
    }
}

#[derive(Debug)]
enum Look {
    Held(Grant),
    Busy(Holder),
}

/// When to ask again at the latest: at the end of the holder's lease.
fn recheck(holder: &Holder) -> Duration {
    holder.until.saturating_since(Moment::now())
}

/// For how long the kernel's lock is tried: less than core waits for the verb, so that the error which
/// names the process in the way arrives.
fn effort(claim: &Claim, wanted: Weak<()>) -> Effort {
    Effort::new(wanted, (claim.lease / 8).clamp(Duration::from_millis(25), Duration::from_millis(1500)))
}
