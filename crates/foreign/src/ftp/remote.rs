//! The server as `tree` asks for it.

use super::fault::{Fault, Result};
use super::large::FtpLarge;
use super::reading::{self, FtpFile, FtpLane};
use super::sending::{send_some, set_commands, was_set};
use super::server::Ftp;
use super::session::command;
use crate::tree::{
    Asked, Attempts, Attributes, Children, DEPTH_MAX, Faulty, Job, ODD_MAX, Remote, Rename, Small, Stage,
};
use model::Entry;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use store::{Abilities, Directories, Order, Seen, SinkFacts, SourceFile, SourceLane, StagedFile};

/// How often a listing is tried that does not come to its end.
const LISTED_MAX: u32 = 8;

fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

impl Ftp {
    fn change(&self, command: Vec<u8>) -> Result<()> {
        self.0.lease()?.ask(command).map(drop)
    }

    fn change_all(&self, commands: &[Vec<u8>]) -> Vec<Result<super::reply::Reply>> {
        match self.0.lease() {
            Ok(mut lease) => lease.ask_all(commands),
            Err(fault) => commands.iter().map(|_| Err(fault.clone())).collect(),
        }
    }
}

impl Remote for Ftp {
    type Fault = Fault;

    const PROTOCOL: &'static str = "FTP";
    const STAGED_PREFIX: &'static str = ".thalweg-staging-ftp-";
    const NO_REPLACING: &'static str = "this server cannot replace a file in one step: remove it there first";

    fn name(&self) -> &str {
        &self.0.name
    }

    fn attempts(&self) -> &Attempts {
        &self.0.attempts
    }

    fn look(&self, path: &[u8]) -> Asked<Attributes, Self> {
        let there = self.look_through(path)?;
        // Without facts whatever can be entered is a directory. Who takes a link for one removes what is not meant.
        let is_in_doubt = !self.0.can.facts && there.is_directory();
        let link = if is_in_doubt { self.listed_link(path)? } else { None };
        Ok(link.unwrap_or(there))
    }

    fn look_behind(&self, path: &[u8]) -> Asked<Attributes, Self> {
        let there = self.look_through(path)?;
        if !there.is_link() {
            return Ok(there);
        }
        // Whoever can be entered is a directory; of another link only the file behind it matters.
        let entered = self.0.with(|session| session.ask(command("CWD", path)));
        let kind = if entered.is_ok() { 0o040_000 } else { 0o100_000 };
        Ok(Attributes { mode: there.mode.map(|mode| kind | mode & 0o7777), ..there })
    }

    fn look_all(&self, paths: &[Vec<u8>]) -> Vec<Asked<Attributes, Self>> {
        if paths.is_empty() {
            return Vec::new();
        }
        let all: Vec<&[u8]> = paths.iter().map(|path| &path[..]).collect();
        let looked = self.0.with(|session| {
            let looked = session.look_all(&all);
            // What was lost is asked again, all of it.
            match looked.iter().find_map(|one| one.as_ref().err().filter(|fault| fault.is_lost())) {
                Some(lost) => Err(lost.clone()),
                None => Ok(looked),
            }
        });
        looked.unwrap_or_else(|fault| paths.iter().map(|_| Err(fault.clone())).collect())
    }

    fn link_target(&self, path: &[u8]) -> Asked<Vec<u8>, Self> {
        let at = path.iter().rposition(|byte| *byte == b'/').ok_or(Fault::Absent)?;
        let children = self.children(&path[..at.max(1)], true)?;
        let found = children.found.into_iter().find(|child| child.name.as_bytes() == &path[at + 1..]);
        found.map(|child| child.target).filter(|target| !target.is_empty()).ok_or(Fault::Absent)
    }

    fn children(&self, path: &[u8], with_targets: bool) -> Asked<Children, Self> {
        if path.iter().filter(|byte| **byte == b'/').count() > DEPTH_MAX {
            return Err(Fault::Malformed("its directories are nested more than 256 deep"));
        }
        let mut children = Children::default();
        for one in self.list(path)? {
            let one = match one {
                Ok(one) if one.is_own => continue,
                Ok(one) => one,
                // A name with a line break is two lines.
                Err(line) => {
                    if children.odd.len() < ODD_MAX {
                        children.odd.push(format!("the server lists {:?}, which tells of nothing", shown(&line)));
                    }
                    continue;
                }
            };
            let is_aimless = one.attributes.is_link() && one.target.is_empty();
            if is_aimless && with_targets {
                if children.odd.len() < ODD_MAX {
                    children.odd.push(format!("the server does not tell where {} leads to", shown(&one.name)));
                }
                continue;
            }
            children.add(&one.name, one.attributes, one.target);
        }
        children.sort();
        if !self.0.can.facts {
            self.complete(path, &mut children)?;
        }
        Ok(children)
    }

    fn make(&self, path: &[u8]) -> Asked<(), Self> {
        self.change(command("MKD", path)).map_err(|fault| self.explained(fault, path))
    }

    fn make_link(&self, _: &[u8], _: &[u8]) -> Asked<(), Self> {
        Err(Fault::Unable("FTP makes no symbolic links"))
    }

    fn remove_all(&self, paths: &[Vec<u8>]) -> Vec<Asked<(), Self>> {
        let commands: Vec<_> = paths.iter().map(|path| command("DELE", path)).collect();
        self.change_all(&commands).into_iter().map(|removed| removed.map(drop)).collect()
    }

    fn remove_directory(&self, path: &[u8]) -> Asked<(), Self> {
        self.change(command("RMD", path))
    }

    fn rename_all(&self, renames: &[Rename<'_>]) -> Vec<Asked<(), Self>> {
        let commands: Vec<_> =
            renames.iter().flat_map(|one| [command("RNFR", one.from), command("RNTO", one.to)]).collect();
        let mut replies = self.change_all(&commands).into_iter();
        let pairs = std::iter::from_fn(|| Some((replies.next()?, replies.next()?)));
        pairs.map(|(from, to)| from.and(to).map(drop)).collect()
    }

    fn replaces(&self) -> Asked<bool, Self> {
        Ok(true)
    }

    fn set(&self, path: &[u8], attributes: &Attributes) -> Asked<(), Self> {
        let mut lease = self.0.lease()?;
        let commands = set_commands(&lease, path, attributes);
        let mut replies = lease.ask_all(&commands);
        drop(lease);
        // Many servers set the times of files and not of directories; that of a file was what mattered.
        if attributes.modified.is_some()
            && let Some(Err(fault)) = replies.first()
        {
            let fault = fault.clone();
            if !self.look_through(path)?.is_directory() {
                return Err(fault);
            }
            let _ = replies.remove(0);
        }
        was_set(&self.0, &Attributes { modified: None, ..*attributes }, replies)
    }

    fn open(self: &Arc<Self>, path: Vec<u8>) -> store::Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(FtpFile::open(&self.0, path)?))
    }

    fn lane(self: &Arc<Self>, directories: Arc<Directories>) -> Box<dyn SourceLane> {
        Box::new(FtpLane::new(self.0.clone(), directories))
    }

    fn read_all(self: &Arc<Self>, path: &[u8], bytes_max: u64, each: &mut dyn FnMut(&[u8])) -> store::Result<()> {
        reading::read_all(&self.0, path, bytes_max, each)
    }

    fn facts(&self, _: &[u8]) -> store::Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: "ftp",
            is_memory_backed: false,
            cannot_sync: false,
            free_bytes: u64::MAX,
            free_inodes: None,
            order: if self.0.can.grid { Order::Any } else { Order::EachObject },
            part_rule: None,
            shares_on: None,
            // There is no request that makes anything last.
            confirms: true,
            can: Abilities { compare: true, prune: true, amend: true, touch: true, reread: true, ..Abilities::NONE },
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("content went to {} in clear text: FTP encrypts no data", self.0.name)];
        if self.0.keeps_no_times.load(Relaxed) {
            notes.push(format!(
                "{} does not let times be set: a later sync sees every file as changed, unless with --compare size",
                self.0.name
            ));
        }
        notes
    }

    fn seen(&self) -> Vec<Seen> {
        let can = &self.0.can;
        vec![
            Seen::good("server", format!("{} lets {} in", self.0.name, self.0.user())),
            Seen::note(
                "data",
                "passive connections are there, and not encrypted",
                "others on the path can read what is sent",
                "use sftp://, davs:// or an endpoint where that matters",
            ),
            match can.grid {
                true => Seen::good("streams", "GridFTP: several data connections, from any place of a file"),
                false => Seen::note(
                    "streams",
                    "plain FTP: one data connection for each file",
                    "an upload that breaks begins again",
                    "gsiftp:// at a GridFTP server goes on where it stopped",
                ),
            },
            match can.facts {
                true => Seen::good("listings", "are facts (MLSD)"),
                false => Seen::note(
                    "listings",
                    "are what `ls -l` prints (no MLSD)",
                    "each file is asked for its time, and odd names may be read wrongly",
                    "a newer server may have MLSD",
                ),
            },
            match can.checksums {
                true => Seen::good("checksums", "Adler-32 by the server (CKSM): every file is compared"),
                false => Seen::note(
                    "checksums",
                    "the server computes none (no CKSM with ADLER32)",
                    "nothing but TCP notices damage on the way",
                    "use --verify reread, which reads each file back",
                ),
            },
        ]
    }

    fn group_files(&self) -> usize {
        self.0.group_files()
    }

    fn send(self: &Arc<Self>, group: &mut [(u64, Small)], _: bool) -> store::Result<()> {
        let mut wanted: Vec<&mut Small> = group
            .iter_mut()
            .map(|(_, small)| small)
            .filter(|small| small.failure.is_none() && !small.is_sent)
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let lost: Mutex<Option<Fault>> = Mutex::default();
        self.0.spread(&mut wanted, 1, |some| {
            if let Err(fault) = send_some(&self.0, some) {
                lost.lock().unwrap().get_or_insert(fault);
            }
        });
        let failed = wanted.iter_mut().filter(|small| small.failure.is_some());
        let partial: Vec<_> = failed
            .map(|small| {
                small.is_sent = false;
                small.path.clone()
            })
            .collect();
        // They may be there in part. Where there is no turn for it, one wait is enough.
        if !partial.is_empty() {
            let _ = self.remove_all(&partial);
        }
        // Whoever had it sent sends it again, as often as is worth it.
        lost.into_inner().unwrap().map_or(Ok(()), |fault| Err(fault.on("write file", b"")))
    }

    fn sync_names(&self, _: &[u8]) -> store::Result<()> {
        Ok(())
    }
}

impl Stage for Ftp {
    fn begin(job: &Arc<Job<Self>>, entry: &Entry, stem: &str) -> store::Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (file, journal) = FtpLarge::begin(job.clone(), entry, stem)?;
        Ok((Arc::new(file), journal))
    }
}

impl Ftp {
    /// What stands at a path; at a server without facts, what a link there leads to.
    fn look_through(&self, path: &[u8]) -> Result<Attributes> {
        self.0.with(|session| session.look_all(&[path]).remove(0))
    }

    /// The link at a path, if the directory above lists one there. The root is none.
    fn listed_link(&self, path: &[u8]) -> Result<Option<Attributes>> {
        let at = path.iter().rposition(|byte| *byte == b'/').filter(|at| at + 1 < path.len());
        let Some(at) = at else { return Ok(None) };
        let told = self.list(&path[..at.max(1)])?;
        let mut found = told.into_iter().flatten().filter(|one| one.name == path[at + 1..]);
        Ok(found.find(|one| one.attributes.is_link()).map(|one| one.attributes))
    }

    /// Globus gives up a listing when a name in it is taken away meanwhile.
    fn list(&self, path: &[u8]) -> Result<Vec<std::result::Result<super::facts::Told, Vec<u8>>>> {
        for _ in 1..LISTED_MAX {
            match self.0.with(|session| session.list(path, now())) {
                Err(fault @ Fault::Refused { .. }) if fault.is_absent() => _ = self.look_through(path)?,
                listed => return listed,
            }
        }
        self.0.with(|session| session.list(path, now()))
    }

    /// A refusal that may be for want of the directory above, by a server that does not say.
    fn explained(&self, fault: Fault, path: &[u8]) -> Fault {
        let above = path.iter().rposition(|byte| *byte == b'/').map(|at| &path[..at.max(1)]);
        let is_absent = |above: &[u8]| self.look_through(above).is_err_and(|fault| fault.is_absent());
        match fault {
            Fault::Refused { .. } if above.is_some_and(is_absent) => Fault::Absent,
            fault => fault,
        }
    }

    /// Asks for the times of files, which lists round.
    fn complete(&self, path: &[u8], children: &mut Children) -> Result<()> {
        let mut files: Vec<_> = children.found.iter_mut().filter(|child| child.attributes.is_file()).collect();
        let commands: Vec<_> =
            files.iter().map(|child| command("MDTM", &crate::tree::join(path, child.name.as_bytes()))).collect();
        let replies = self.0.with(|session| Ok(session.ask_all(&commands)))?;
        for (child, reply) in files.iter_mut().zip(replies) {
            match reply {
                Ok(reply) => {
                    let exact = super::facts::seconds(&reply.text);
                    child.attributes.modified = exact.or(child.attributes.modified);
                }
                Err(Fault::Refused { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }
}

fn shown(name: &[u8]) -> String {
    crate::tree::shown(&name[..name.len().min(100)])
}
