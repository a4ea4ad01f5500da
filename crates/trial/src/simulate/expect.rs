//! What an attempt may come to under each fault: the expected words of `faults.toml`, held against how it ended.
//!
//! Invariant: a fault that did not fire while the job was under way excuses nothing.

use super::faults::{DiskFaults, Fired, Kind};
use super::scenario::Fault;
use super::transfer::Attempt;
use mover::Ending;
use rustix::io::Errno;

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// Finished, with nothing failed.
    Keep,
    /// Finished, and so many objects are reported as failed.
    FailFile(u64),
    /// One side gave the job up and said why.
    FailJob(String),
    /// A host died or the session broke: RETRY is for the attempt after it.
    Lost,
    /// One side called what the other sent wrong.
    Refused(String),
}

impl Word {
    pub fn of(attempt: &Attempt) -> Word {
        if let Some(refusal) = &attempt.refused {
            return Word::Refused(refusal.to_string());
        }
        match (&attempt.ending, &attempt.not_started) {
            (Some(Ending::Finished(_)), _) if attempt.counts[3] == 0 => Word::Keep,
            (Some(Ending::Finished(_)), _) => Word::FailFile(attempt.counts[3]),
            (Some(Ending::Cancelled { refusal, .. }), _) => Word::FailJob(refusal.to_string()),
            (_, Some(why)) => Word::FailJob(why.clone()),
            _ => Word::Lost,
        }
    }
}

/// What of a job decides how a fault may end it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Job {
    pub is_delta: bool,
    /// What is replaced or removed is kept in a backup directory.
    pub keeps_backups: bool,
    /// The names of the file that has several: they fail with its content.
    pub names_of_one: u64,
}

/// Holds the end of an attempt against what its fault allows.
///
/// # Errors
/// Says what was allowed.
pub fn check(fault: &Fault, fired: Fired, word: &Word, job: Job) -> Result<(), String> {
    let is_allowed = match fired {
        // What cannot be read to compare it travels whole.
        Fired::InTime if job.is_delta && matches!(fault, Fault::SenderDisk(_)) && *word == Word::Keep => true,
        // Its other names fail with a file.
        Fired::InTime if *word == Word::FailFile(job.names_of_one) && fails_a_file(fault) => true,
        // A backup directory is made and synced first: where that fails, all that needs it stays as it was, and is named.
        Fired::InTime if job.keeps_backups && is_sync(fault) && matches!(word, Word::FailFile(_)) => true,
        Fired::InTime => is_allowed(fault, word),
        // Who dies with the last word on its way leaves the other side without it.
        Fired::Late if is_kill(fault) => matches!(word, Word::Keep | Word::Lost),
        // What comes damaged behind the end is refused all the same.
        Fired::Late if is_flip(fault) => matches!(word, Word::Keep | Word::Refused(_)),
        Fired::Late | Fired::No => *word == Word::Keep,
    };
    if is_allowed {
        Ok(())
    } else {
        Err(format!("the outcome is {word:?}, which this fault ({fired:?}) does not explain"))
    }
}

/// The words of `faults.toml` that `is_allowed` lets a fault end with that fired in time.
pub fn allowed(fault: &Fault, job: Job) -> &'static [&'static str] {
    match fault {
        _ if job.keeps_backups && is_sync(fault) => &["KEEP", "FAIL-FILE", "FAIL-JOB"],
        Fault::None => &["KEEP"],
        Fault::KillReceiver(_) | Fault::PowerLoss(_) | Fault::KillSender(_) => &["RETRY"],
        Fault::Network(network, ..) if network.control_cut_at.is_some() => &["RETRY"],
        Fault::Network(..) if is_flip(fault) => &["KEEP", "REFUSE"],
        Fault::Network(..) => &["KEEP"],
        Fault::ReceiverDisk(faults, ..) => match faults.error {
            None | Some((_, Kind::Write, Errno::IO)) => &["KEEP"],
            Some((_, Kind::Write | Kind::Sync, _)) => &["KEEP", "FAIL-JOB"],
            Some(_) => &["KEEP", "FAIL-FILE", "FAIL-JOB"],
        },
        Fault::SenderDisk(_) => &["FAIL-FILE"],
        Fault::SourceChanges(..) => &["KEEP", "FAIL-FILE"],
    }
}

/// It fails a file, and with that the other names of it.
fn fails_a_file(fault: &Fault) -> bool {
    let fails =
        |faults: &DiskFaults| faults.error.is_some_and(|(_, kind, _)| !matches!(kind, Kind::Write | Kind::Sync));
    matches!(fault, Fault::SenderDisk(_)) || matches!(fault, Fault::ReceiverDisk(faults, _) if fails(faults))
}

/// A sync of the receiver's storage fails.
fn is_sync(fault: &Fault) -> bool {
    matches!(fault, Fault::ReceiverDisk(DiskFaults { error: Some((_, Kind::Sync, _)), .. }, _))
}

fn is_kill(fault: &Fault) -> bool {
    matches!(fault, Fault::KillReceiver(_) | Fault::PowerLoss(_) | Fault::KillSender(_))
}

fn is_flip(fault: &Fault) -> bool {
    matches!(fault, Fault::Network(network, ..) if network.stream.flip_at.is_some())
}

fn is_allowed(fault: &Fault, word: &Word) -> bool {
    let keeps = *word == Word::Keep;
    let fails_one = keeps || *word == Word::FailFile(1);
    let gives_up = keeps || matches!(word, Word::FailJob(_));
    match fault {
        Fault::None => keeps,
        // The other threads of a host that dies may still say that its storage failed.
        Fault::KillReceiver(_) | Fault::PowerLoss(_) | Fault::KillSender(_) => {
            matches!(word, Word::Lost | Word::FailJob(_))
        }
        // F100 RETRY: the session is over, and the attempt after it goes on.
        Fault::Network(network, ..) if network.control_cut_at.is_some() => *word == Word::Lost,
        // F075 RETRY: asked for again; a frame that became another one is refused.
        Fault::Network(..) if is_flip(fault) => keeps || matches!(word, Word::Refused(_)),
        // F004, F025, F099: the streams that are left, and a new one, carry what was lost.
        Fault::Network(..) => keeps,
        // F073 KEEP.
        Fault::ReceiverDisk(faults, ..) if faults.short_bytes.is_some() => keeps,
        Fault::ReceiverDisk(faults, ..) => match faults.error {
            // F072 RETRY: one error, and the object comes again.
            Some((_, Kind::Write, Errno::IO)) => keeps,
            // F070 FAIL-JOB, where there is no way around; a sync that fails ends a job whose names it may have lost.
            Some((_, Kind::Write | Kind::Sync, _)) => gives_up,
            // Tidying up fails, and is done by the next attempt; or what was to be removed stays, and is named.
            // What of attributes cannot be set is a warning.
            // F081 FAIL-JOB, or one object that could not be made or named.
            Some(_) => gives_up || fails_one,
            None => keeps,
        },
        // F071 FAIL-FILE: the one that was read.
        Fault::SenderDisk(_) => *word == Word::FailFile(1),
        // F058 FAIL-FILE: described again, or reported.
        Fault::SourceChanges(..) => fails_one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_excuses_its_own_outcome_only_and_one_that_did_not_fire_excuses_nothing() {
        let plain = Job::default();
        let killed = Fault::KillReceiver(DiskFaults::default());
        assert!(check(&killed, Fired::InTime, &Word::Lost, plain).is_ok());
        assert!(check(&killed, Fired::InTime, &Word::Keep, plain).is_err());
        assert!(check(&killed, Fired::No, &Word::Lost, plain).is_err());
        let error = Some((1, Kind::Write, Errno::IO));
        let written = Fault::ReceiverDisk(DiskFaults { error, ..DiskFaults::default() }, "");
        assert!(check(&written, Fired::InTime, &Word::Keep, plain).is_ok());
        assert!(check(&written, Fired::InTime, &Word::FailFile(1), plain).is_err());
        let read = Fault::SenderDisk(DiskFaults::default());
        assert!(check(&read, Fired::InTime, &Word::FailFile(1), plain).is_ok());
        assert!(check(&read, Fired::InTime, &Word::Keep, plain).is_err());
        assert!(check(&read, Fired::InTime, &Word::Keep, Job { is_delta: true, ..plain }).is_ok());
        let error = Some((1, Kind::Sync, Errno::NOSPC));
        let synced = Fault::ReceiverDisk(DiskFaults { error, ..DiskFaults::default() }, "");
        let keeps_backups = Job { keeps_backups: true, ..plain };
        assert!(check(&synced, Fired::InTime, &Word::FailFile(1), plain).is_err());
        assert!(check(&synced, Fired::InTime, &Word::FailFile(1), keeps_backups).is_ok());
        assert!(check(&synced, Fired::InTime, &Word::FailFile(2), keeps_backups).is_ok());
        assert!(check(&written, Fired::InTime, &Word::FailFile(1), keeps_backups).is_err());
        assert!(check(&Fault::None, Fired::No, &Word::Refused(String::new()), plain).is_err());
    }
}
