//! The faults that come from outside, the same for every tool, and what each leaves at the final names.

use super::stage::Stage;
use super::tool::Tool;
use crate::outside::process::{Finished, LOOK_INTERVAL, Running};
use crate::outside::tree::{self, Files, Seen};
use anyhow::{Context, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A client that is not over by then is stuck.
const LIMIT: Duration = Duration::from_secs(30);
/// What the surviving side gets to notice before it is killed too.
const NOTICE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    KillReceiver,
    KillSender,
    DiskFull,
    BitFlip,
    SourceChanges,
    DestinationSwapped,
}

pub const FAULTS: [Fault; 6] = [
    Fault::KillReceiver,
    Fault::KillSender,
    Fault::DiskFull,
    Fault::BitFlip,
    Fault::SourceChanges,
    Fault::DestinationSwapped,
];

/// What one trial left.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Left {
    pub has_fired: bool,
    /// Exit code of the command under the fault; none: killed by the trial.
    pub code: Option<i32>,
    pub is_stuck: bool,
    pub absent: u64,
    pub old: u64,
    pub complete: u64,
    /// Half, mixed or damaged objects at final names.
    pub wrong: u64,
    pub foreign: u64,
    /// The same command given again delivered everything.
    pub is_mended: Option<bool>,
    pub outside_touched: u64,
    pub said: String,
}

impl Left {
    /// Success was reported, and what stands there is not the source.
    pub fn is_lie(&self) -> bool {
        self.code == Some(0) && (self.wrong > 0 || self.absent > 0 || self.old > 0)
    }

    fn take(&mut self, seen: &Seen) {
        (self.absent, self.old, self.complete) = (seen.absent, seen.old, seen.complete);
        (self.wrong, self.foreign) = (seen.wrong.len() as u64, seen.foreign.len() as u64);
    }

    fn take_end(&mut self, finished: Option<Finished>) {
        self.is_stuck = finished.is_none();
        let Some(finished) = finished else { return };
        self.code = finished.code;
        self.said = finished.stderr.lines().rev().take(3).collect::<Vec<_>>().join("; ").chars().take(300).collect();
    }
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillReceiver => "kill -9 of the receiver",
            Fault::KillSender => "kill -9 of the sender",
            Fault::DiskFull => "disk full",
            Fault::BitFlip => "bit flipped on the wire",
            Fault::SourceChanges => "source changes while it is read",
            Fault::DestinationSwapped => "destination directory swapped with a link",
        }
    }

    /// The faults of docs/reliability.md that it stands for.
    pub fn ids(self) -> &'static [&'static str] {
        match self {
            Fault::KillReceiver | Fault::KillSender => &["F087"],
            Fault::DiskFull => &["F070"],
            Fault::BitFlip => &["F075"],
            Fault::SourceChanges => &["F058"],
            Fault::DestinationSwapped => &["F042"],
        }
    }

    pub fn meets(self, tool: Tool) -> bool {
        tool.has_server() || !matches!(self, Fault::KillReceiver | Fault::BitFlip)
    }
}

/// One trial: a tool, the source it copies, and when or where the fault comes, as a share from 0 to 1.
pub struct Trial<'a> {
    pub tool: Tool,
    pub program: &'a Path,
    pub dir: &'a Path,
    pub source: &'a Path,
    pub files: &'a Files,
    pub share: f64,
    pub seed: u64,
}

impl Trial<'_> {
    pub fn run(&self, fault: Fault) -> Result<Left> {
        match fault {
            Fault::KillReceiver => self.kill(true),
            Fault::KillSender => self.kill(false),
            Fault::DiskFull => self.fill(),
            Fault::BitFlip => self.flip(),
            Fault::SourceChanges => self.change(),
            Fault::DestinationSwapped => self.swap(),
        }
    }

    fn stage(&self) -> Result<Stage> {
        Stage::make(self.tool, self.program, self.dir, self.source, self.seed)
    }

    /// What has moved when the fault comes.
    fn share_of(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.share) as u64
    }

    fn bytes(&self) -> u64 {
        self.files.values().map(|known| known.bytes).sum()
    }

    /// A copy that nothing disturbs; how long it took. An error: it does not work at all.
    pub fn undisturbed(&self) -> Result<f64> {
        let mut stage = self.stage()?;
        let old = stage.put_old(self.files, self.seed)?;
        stage.start_server()?;
        let finished = stage.start_client("usual")?.finish(Instant::now() + LIMIT, || {});
        let finished = finished.context("an undisturbed copy did not end in time")?;
        let seen = stage.look(self.files, &old)?;
        let is_well = finished.code == Some(0) && seen.is_complete();
        let said = || format!("an undisturbed copy left {seen:?}, exit {:?}: {}", finished.code, finished.stderr);
        is_well.then_some(finished.seconds).with_context(said)
    }

    fn kill(&self, is_receiver: bool) -> Result<Left> {
        let mut stage = self.stage()?;
        let old = stage.put_old(self.files, self.seed)?;
        stage.start_server()?;
        let mut left = Left::default();
        let due = stage.moved_bytes() + self.share_of(self.bytes());
        let mut client = stage.start_client("first")?;
        await_moved(&stage, &mut client, due);
        left.has_fired = !client.has_ended();
        if is_receiver {
            stage.kill_server();
            // A client that tries again for longer is killed as well: that is no fault of its own.
            if let Some(finished) = client.finish(Instant::now() + NOTICE, || {}) {
                left.take_end(Some(finished));
            }
        } else {
            client.kill_contained();
            if stage.tool.has_server() {
                // The server notices that its peer is gone; what it does then belongs to what it leaves behind.
                wait_until(Instant::now() + Duration::from_millis(300));
            }
        }
        left.take(&stage.look(self.files, &old)?);
        let again = stage.run_again(LIMIT)?;
        let is_well = again.is_some_and(|again| again.code == Some(0));
        left.is_mended = Some(is_well && stage.look(self.files, &old)?.is_complete());
        Ok(left)
    }

    fn fill(&self) -> Result<Left> {
        let mut stage = self.stage()?;
        let share = 0.2 + 0.6 * self.share;
        stage.shrink((self.bytes() as f64 * share) as u64)?;
        stage.start_server()?;
        let mut left = Left { has_fired: true, ..Left::default() };
        left.take_end(stage.start_client("first")?.finish(Instant::now() + LIMIT, || {}));
        left.take(&stage.look(self.files, &Files::new())?);
        Ok(left)
    }

    fn flip(&self) -> Result<Left> {
        let mut stage = self.stage()?;
        stage.start_server()?;
        let at = (self.bytes() as f64 * (0.1 + 0.8 * self.share)) as u64;
        stage.flip_on_the_way(at)?;
        let mut left = Left::default();
        left.take_end(stage.start_client("first")?.finish(Instant::now() + LIMIT, || {}));
        left.has_fired = stage.flips() > 0;
        left.take(&stage.look(self.files, &Files::new())?);
        Ok(left)
    }

    /// One large file is overwritten in place while it is read: the destination may show one version or the other.
    fn change(&self) -> Result<Left> {
        let source = self.dir.join("changing");
        // A copy within one host is over in a fraction of the time.
        let bytes = if self.tool.has_server() { 48 << 20 } else { 256 << 20 };
        let path = PathBuf::from("f");
        let before = tree::write(&source.join(&path), bytes, self.seed)?;
        let after = tree::write(&self.dir.join("after"), bytes, self.seed + 1_000_000)?;
        let content = fs::read(self.dir.join("after")).context("read the later version")?;
        let mut stage = Stage::make(self.tool, self.program, self.dir, &source, self.seed)?;
        stage.start_server()?;
        let due = stage.moved_bytes() + self.share_of(bytes);
        let mut client = stage.start_client("first")?;
        await_moved(&stage, &mut client, due);
        let file = File::options().write(true).open(source.join(&path)).context("open the changing file")?;
        file.write_all_at(&content, 0).context("change the source")?;
        drop(file);
        let mut left = Left { has_fired: !client.has_ended(), ..Left::default() };
        left.take_end(client.finish(Instant::now() + LIMIT, || {}));
        let (earlier, later) = (Files::from([(path.clone(), before)]), Files::from([(path, after)]));
        left.take(&stage.look(&later, &earlier)?);
        // Whichever version it is, it is one.
        (left.complete, left.old) = (left.complete + left.old, 0);
        Ok(left)
    }

    /// The directories of the destination change places with links to a directory outside, over and over.
    fn swap(&self) -> Result<Left> {
        let mut stage = self.stage()?;
        let outside = self.dir.join("outside");
        let sentinel = tree::write(&outside.join("f000000"), 1000, 5)?;
        let expected = Files::from([(PathBuf::from("f000000"), sentinel)]);
        stage.give_away(&outside)?;
        let parents: Vec<_> = directories(self.files).map(|below| stage.destination.join(below)).collect();
        for parent in &parents {
            fs::create_dir_all(parent).context("create a directory")?;
        }
        stage.give_away(&stage.destination)?;
        let traps: Vec<_> = (0..parents.len()).map(|index| self.dir.join(format!("trap{index}"))).collect();
        for trap in &traps {
            symlink(&outside, trap).context("make a link")?;
        }
        stage.start_server()?;
        let mut client = stage.start_client("first")?;
        let (is_over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut left = Left::default();
        std::thread::scope(|scope| {
            scope.spawn(|| swap_until(&parents, &traps, &is_over, &swaps));
            left.take_end(client.finish(Instant::now() + LIMIT, || {}));
            is_over.store(true, Relaxed);
        });
        left.has_fired = swaps.load(Relaxed) > 0;
        let seen = tree::compare(&outside, &expected, &Files::new())?;
        left.outside_touched = (seen.absent + seen.old) + (seen.wrong.len() + seen.foreign.len()) as u64;
        left.take(&stage.look(self.files, &Files::new())?);
        Ok(left)
    }
}

fn directories(files: &Files) -> impl Iterator<Item = PathBuf> {
    let parents: std::collections::BTreeSet<_> = files.keys().filter_map(|path| path.parent()).collect();
    parents.into_iter().map(Path::to_owned).collect::<Vec<_>>().into_iter()
}

/// An even number of exchanges, so that the directories stand at their names in the end.
fn swap_until(parents: &[PathBuf], traps: &[PathBuf], is_over: &AtomicBool, swaps: &AtomicU64) {
    while !is_over.load(Relaxed) {
        for _ in 0..2 {
            for (parent, trap) in parents.iter().zip(traps) {
                let swapped = renameat_with(CWD, parent, CWD, trap, RenameFlags::EXCHANGE);
                swaps.fetch_add(u64::from(swapped.is_ok()), Relaxed);
            }
            // Both states last long enough for the copy to meet each of them.
            std::thread::park_timeout(Duration::from_micros(200));
        }
    }
}

/// Waits until so much has moved, or the copy is over.
fn await_moved(stage: &Stage, client: &mut Running, due_bytes: u64) {
    let deadline = Instant::now() + LIMIT;
    while stage.moved_bytes() < due_bytes && !client.has_ended() && Instant::now() < deadline {
        // A copy within one host is over in a fraction of any pause.
        if stage.tool.has_server() {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }
}

fn wait_until(moment: Instant) {
    while Instant::now() < moment {
        std::thread::park_timeout(LOOK_INTERVAL.min(moment.saturating_duration_since(Instant::now())));
    }
}
