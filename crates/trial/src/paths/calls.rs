//! The calls under attack: each round runs one of the production's ways to storage, from the root's descriptor on.
//!
//! A round says what was broken if it can see it at once: a directory or content that is not the one inside. That a call
//! fails is no breach. What a round leaves inside it removes again, through a descriptor of its own.

use super::arena::{Arena, INSIDE, OUTSIDE_BYTES, OUTSIDE_ONLY, Pair};
use super::outside::LINKED;
use model::name::relative_path;
use model::{Entry, Generation, Kind, Name, ObjectId};
use rustix::fs::{AtFlags, fstat, statat, unlinkat};
use std::os::fd::{AsFd, OwnedFd};
use store::posix::{PosixSink, PosixSource, beneath};
use store::{Decision, Found, PublishRule, Sink, SinkLane, Source, SourceObject};

pub struct Call {
    pub name: &'static str,
    pub faults: &'static [&'static str],
    pub pair: Pair,
    pub round: fn(&Arena, u64) -> Round,
}

/// What was broken, if that shows in the round itself.
pub type Round = Result<(), String>;

pub const D: u64 = 1;
const FAULTS: &[&str] = &["F042"];
pub const METADATA: &[&str] = &["F042", "F045"];

pub const fn call(
    name: &'static str,
    faults: &'static [&'static str],
    pair: Pair,
    round: fn(&Arena, u64) -> Round,
) -> Call {
    Call { name, faults, pair, round }
}

pub const CALLS: &[Call] = &[
    call("resolve", FAULTS, Pair::Directory, resolve),
    call("resolve-through-link", FAULTS, Pair::Directory, resolve_through_link),
    call("make-directories", METADATA, Pair::Directory, make_directories),
    call("make-directory", METADATA, Pair::Directory, make_directory),
    call("decide", FAULTS, Pair::Directory, decide),
    call("publish-file", METADATA, Pair::Directory, publish_file),
    call("publish-unnamed", METADATA, Pair::Directory, publish_unnamed),
    call("publish-over-file", METADATA, Pair::File, publish_over_file),
    call("publish-group", METADATA, Pair::Directory, publish_group),
    call("publish-large", METADATA, Pair::Directory, publish_large),
    call("make-symlink", METADATA, Pair::Directory, make_symlink),
    call("finish-directory", METADATA, Pair::Directory, finish_directory),
    call("discard", METADATA, Pair::Directory, discard),
    call("stage", FAULTS, Pair::Staging, stage),
    call("stage-large", FAULTS, Pair::Staging, stage_large),
    call("sweep", METADATA, Pair::Lane, sweep),
    call("staged-links", &["F044"], Pair::Prepared, staged_links),
    call("parent-moved", &["F043"], Pair::Moved, parent_moved),
    call("scan", FAULTS, Pair::Directory, scan),
    call("read-whole", FAULTS, Pair::Directory, read_whole),
    call("read-file", FAULTS, Pair::File, read_whole),
    call("open", FAULTS, Pair::Directory, open),
    call("look-again", FAULTS, Pair::Directory, look_again),
];

fn resolve(arena: &Arena, _: u64) -> Round {
    resolved(arena, b"d/sub")
}

fn resolve_through_link(arena: &Arena, _: u64) -> Round {
    resolved(arena, b"inner/sub")
}

fn resolved(arena: &Arena, path: &[u8]) -> Round {
    let names = relative_path(path).expect("a constant path");
    let Ok(found) = beneath::resolve_directory(arena.root_fd.as_fd(), &names) else { return Ok(()) };
    is_inode(&found, arena.sub_inode)
}

fn make_directories(arena: &Arena, round: u64) -> Round {
    let new = format!("new-{round}");
    let names = relative_path(format!("d/{new}").as_bytes()).expect("a plain path");
    let Ok(made) = beneath::make_directories(arena.root_fd.as_fd(), &names) else { return Ok(()) };
    let parent = statat(&made, c"..", AtFlags::empty()).map_err(|e| e.to_string())?;
    let _ = unlinkat(&arena.inside_fd, &*new, AtFlags::REMOVEDIR);
    match parent.st_ino == arena.inside_inode {
        true => Ok(()),
        false => Err("a directory was made elsewhere".into()),
    }
}

fn make_directory(arena: &Arena, round: u64) -> Round {
    let sink = sink(arena);
    let new = format!("new-{round}");
    let entry = Entry { kind: Kind::Directory, mode: 0o755, ..file(2, D, &new) };
    if sink.make_directory(&d()).and_then(|()| sink.make_directory(&entry)).is_ok() {
        landed(arena, &new, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn decide(arena: &Arena, _: u64) -> Round {
    let sink = sink(arena);
    if sink.make_directory(&d()).is_err() {
        return Ok(());
    }
    match sink.decide(&file(2, D, "f")) {
        Ok(Decision::Replace { size_bytes: OUTSIDE_BYTES, .. }) => Err("it looked at the outside file".into()),
        _ => Ok(()),
    }
}

fn publish_file(arena: &Arena, round: u64) -> Round {
    publish_by_lane(arena, &format!("pub-{round}"), PublishRule::NoReplace, false)
}

fn publish_unnamed(arena: &Arena, round: u64) -> Round {
    publish_by_lane(arena, &format!("pub-{round}"), PublishRule::NoReplace, true)
}

fn publish_by_lane(arena: &Arena, name: &str, rule: PublishRule, at_once: bool) -> Round {
    let sink = sink(arena);
    let entry = file(2, D, name);
    let published = sink.make_directory(&d()).and_then(|()| {
        let mut lane = sink.lane(at_once)?;
        let staged = staged(&mut *lane, &entry, rule)?;
        lane.publish(&entry, staged)
    });
    sink.close();
    match published {
        Ok(()) => landed(arena, name, AtFlags::empty()),
        Err(_) => Ok(()),
    }
}

/// The final name itself is swapped: the link is replaced, and what it leads to stays as it is.
fn publish_over_file(arena: &Arena, _: u64) -> Round {
    let sink = sink(arena);
    let entry = file(2, D, "f");
    let published = sink.make_directory(&d()).and_then(|()| sink.decide(&entry)).and_then(|_| {
        let mut lane = sink.lane(false)?;
        let staged = staged(&mut *lane, &entry, PublishRule::Replace)?;
        lane.publish(&entry, staged)
    });
    sink.close();
    if published.is_ok() {
        // Both may be files by now: a link is put in the place of one, so that there is something to swap.
        let y = arena.root.join("d/y");
        if std::fs::symlink_metadata(&y).is_ok_and(|meta| meta.is_file()) && is_file(&arena.root.join("d/f")) {
            let _ = std::fs::remove_file(&y);
            let _ = std::os::unix::fs::symlink("../../outside/d/f", &y);
        }
    }
    Ok(())
}

fn is_file(path: &std::path::Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}

fn publish_group(arena: &Arena, round: u64) -> Round {
    let sink = sink(arena);
    let name = format!("pub-{round}");
    let entry = file(2, D, &name);
    let published = sink.make_directory(&d()).and_then(|()| {
        let mut lane = sink.lane(false)?;
        let staged = staged(&mut *lane, &entry, PublishRule::NoReplace)?;
        sink.sync_group(&mut std::iter::once(staged))?;
        sink.reread(&entry, staged, &mut |_| {})?;
        sink.publish(&entry, staged)?;
        sink.sync_names()
    });
    sink.close();
    match published {
        Ok(()) => landed(arena, &name, AtFlags::empty()),
        Err(_) => Ok(()),
    }
}

fn publish_large(arena: &Arena, round: u64) -> Round {
    let sink = sink(arena);
    let name = format!("pub-{round}");
    let entry = file(2, D, &name);
    let published = sink.make_directory(&d()).and_then(|()| large(&sink, &entry, round));
    sink.close();
    match published {
        Ok(()) => landed(arena, &name, AtFlags::empty()),
        Err(_) => Ok(()),
    }
}

fn large(sink: &PosixSink, entry: &Entry, round: u64) -> store::Result<()> {
    let (staged, _) = sink.begin(entry, &format!("{round:032x}"))?;
    let published = staged
        .write_at(0, INSIDE)
        .and_then(|()| staged.append_journal(b"journal"))
        .and_then(|()| staged.checkpoint())
        .and_then(|()| staged.publish(entry, PublishRule::NoReplace));
    if published.is_err() {
        staged.discard();
    }
    published
}

fn make_symlink(arena: &Arena, round: u64) -> Round {
    let sink = sink(arena);
    let name = format!("link-{round}");
    let entry = Entry { kind: Kind::Symlink(Box::from(&b"f"[..])), ..file(2, D, &name) };
    let made = sink.make_directory(&d()).and_then(|()| sink.make_symlink(&entry, PublishRule::NoReplace));
    sink.close();
    match made {
        Ok(true) => landed(arena, &name, AtFlags::empty()),
        _ => Ok(()),
    }
}

/// Mode and time of a directory, set by descriptor.
fn finish_directory(arena: &Arena, _: u64) -> Round {
    let sink = PosixSink::new(arena.root_fd.clone(), arena.root_fd.clone(), Some((0o640, 0o750)));
    let _ = sink.make_directory(&d()).and_then(|()| sink.finish_directory(&d()));
    Ok(())
}

fn discard(arena: &Arena, round: u64) -> Round {
    let sink = sink(arena);
    let entry = file(2, D, &format!("pub-{round}"));
    let _ = sink.make_directory(&d()).and_then(|()| {
        let mut lane = sink.lane(false)?;
        let staged = staged(&mut *lane, &entry, PublishRule::NoReplace)?;
        sink.discard(staged);
        lane.create(&entry, PublishRule::NoReplace)?;
        lane.abandon();
        Ok(())
    });
    sink.close();
    Ok(())
}

/// The staging directory itself is swapped.
fn stage(arena: &Arena, round: u64) -> Round {
    let sink = sink(arena);
    let name = format!("s-{round}");
    let entry = file(2, 0, &name);
    let published = sink.lane(false).and_then(|mut lane| {
        let staged = staged(&mut *lane, &entry, PublishRule::NoReplace)?;
        lane.publish(&entry, staged)
    });
    sink.close();
    published_in_root(arena, &name, published.is_ok())
}

fn stage_large(arena: &Arena, round: u64) -> Round {
    let sink = sink(arena);
    let name = format!("s-{round}");
    let entry = file(2, 0, &name);
    let published = large(&sink, &entry, round);
    sink.close();
    published_in_root(arena, &name, published.is_ok())
}

fn published_in_root(arena: &Arena, name: &str, is_published: bool) -> Round {
    let removed = unlinkat(&arena.root_fd, name, AtFlags::empty());
    match (is_published, removed) {
        (true, Err(e)) => Err(format!("what was published is not there: {e}")),
        _ => Ok(()),
    }
}

/// Opening staging sweeps what dead lanes left: one of them is swapped.
fn sweep(arena: &Arena, round: u64) -> Round {
    for name in ["lane-dead", "lane-link"] {
        let lane = arena.staging.join(name);
        let _ = std::fs::create_dir(&lane);
        if std::fs::symlink_metadata(&lane).is_ok_and(|meta| meta.is_dir()) {
            // By its own directory's descriptor: a path could be led outside by our own swapper.
            if let Ok(lane) = open_no_follow(&lane) {
                let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NOFOLLOW;
                let _ = rustix::fs::openat(&lane, c"f", flags, rustix::fs::Mode::from_raw_mode(0o600));
            }
        }
    }
    let sink = sink(arena);
    let entry = file(2, 0, &format!("s-{round}"));
    let _ = sink.lane(false).and_then(|mut lane| staged(&mut *lane, &entry, PublishRule::NoReplace).map(|_| ()));
    sink.close();
    Ok(())
}

fn open_no_follow(path: &std::path::Path) -> rustix::io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::RDONLY;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
}

/// Names in staging that were made before as links, soft and hard, to a file outside.
fn staged_links(arena: &Arena, round: u64) -> Round {
    let theirs = arena.outside.join("d").join(LINKED);
    let stem = format!("{round:032x}");
    let suffix = if round.is_multiple_of(4) { "log" } else { "data" };
    let name = arena.staging.join(format!("{stem}.{suffix}"));
    let made = match round.is_multiple_of(2) {
        true => std::os::unix::fs::symlink(&theirs, &name),
        false => std::fs::hard_link(&theirs, &name),
    };
    // A half that stands alone would be swept before it is met.
    let other = arena.staging.join(format!("{stem}.{}", if suffix == "log" { "data" } else { "log" }));
    made.and_then(|()| std::fs::write(other, b"")).map_err(|e| format!("the attack could not be prepared: {e}"))?;
    let sink = sink(arena);
    let published = large(&sink, &file(2, 0, &format!("s-{round}")), round);
    arena.has_met.set(published.is_err());
    sink.close();
    for suffix in ["log", "data"] {
        let _ = std::fs::remove_file(arena.staging.join(format!("{stem}.{suffix}")));
    }
    let _ = published_in_root(arena, &format!("s-{round}"), published.is_ok());
    match std::fs::read(&theirs) {
        Ok(content) if content == vec![b'O'; OUTSIDE_BYTES as usize] => Ok(()),
        _ => Err("what a link led to was written to".into()),
    }
}

/// The directory stays open while it is moved out of the root and back: what is published goes into it, wherever it is,
/// and nothing is looked for from there.
fn parent_moved(arena: &Arena, round: u64) -> Round {
    let Some(sink) = held_open(arena) else { return Ok(()) };
    let name = format!("pub-{round}");
    let entry = file(2, D, &name);
    let published = sink.lane(false).and_then(|mut lane| {
        let staged = staged(&mut *lane, &entry, PublishRule::NoReplace)?;
        lane.publish(&entry, staged)
    });
    sink.close();
    match published {
        Ok(()) => landed(arena, &name, AtFlags::empty()),
        Err(_) => Ok(()),
    }
}

/// The sink that has opened the directory and keeps it open through all rounds; `None` while it is moved away.
fn held_open(arena: &Arena) -> Option<&PosixSink> {
    if let Some(sink) = arena.held.get() {
        return Some(sink);
    }
    let sink = sink(arena);
    sink.make_directory(&d()).ok()?;
    if !matches!(sink.decide(&file(2, D, "f")), Ok(Decision::Replace { .. } | Decision::Same)) {
        // It was away, and one was made in its place, to which it could not come back.
        let _ = unlinkat(&arena.root_fd, c"d", AtFlags::REMOVEDIR);
        return None;
    }
    Some(arena.held.get_or_init(|| sink))
}

fn scan(arena: &Arena, _: u64) -> Round {
    let mut source = PosixSource::new();
    let root = [arena.root.as_os_str().as_encoded_bytes(), b"/"].concat();
    if source.add_local(&root).is_err() {
        return Ok(());
    }
    let mut is_outside = false;
    let _ = source.scan(&mut |found| {
        if let Found::Object(object) = found {
            is_outside |= object.entry.name.as_bytes() == OUTSIDE_ONLY;
        }
        true
    });
    if is_outside { Err("the outside tree was listed".into()) } else { Ok(()) }
}

fn read_whole(arena: &Arena, _: u64) -> Round {
    let Some((source, object)) = found(arena) else { return Ok(()) };
    let mut buffer = vec![0; OUTSIDE_BYTES as usize];
    match source.lane().read_whole(&object, &mut buffer) {
        Ok((length, _)) => is_inside(&buffer[..length]),
        Err(_) => Ok(()),
    }
}

fn open(arena: &Arena, _: u64) -> Round {
    let Some((source, object)) = found(arena) else { return Ok(()) };
    let Ok(file) = source.lane().open(&object) else { return Ok(()) };
    let mut buffer = vec![0; OUTSIDE_BYTES as usize];
    match file.read_at(0, &mut buffer) {
        Ok(length) => is_inside(&buffer[..length]),
        Err(_) => Ok(()),
    }
}

fn look_again(arena: &Arena, _: u64) -> Round {
    let Some((source, object)) = found(arena) else { return Ok(()) };
    match source.look_again(&object) {
        Ok(again) if again.entry.size_bytes() == OUTSIDE_BYTES => Err("it looked at the outside file".into()),
        _ => Ok(()),
    }
}

/// What a peer that asks for `d/f` below the root gets.
fn found(arena: &Arena) -> Option<(PosixSource, SourceObject)> {
    let mut source = PosixSource::new();
    source.add_beneath(arena.root_fd.as_fd(), b"d/f").ok()?;
    let mut object = None;
    let listed = source.scan(&mut |found| {
        if let Found::Object(found) = found {
            object.get_or_insert(found);
        }
        true
    });
    listed.ok()?;
    Some((source, object?))
}

fn is_inside(content: &[u8]) -> Round {
    match content.contains(&b'O') {
        true => Err("content from outside was read".into()),
        false => Ok(()),
    }
}

fn is_inode(found: &OwnedFd, inode: u64) -> Round {
    match fstat(found) {
        Ok(status) if status.st_ino == inode => Ok(()),
        Ok(_) => Err("a directory outside was opened".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// What a call says it made has to be in the directory inside; it is removed from there.
pub fn landed(arena: &Arena, name: &str, flags: AtFlags) -> Round {
    unlinkat(&arena.inside_fd, name, flags).map_err(|e| format!("what was made is not inside: {e}"))
}

pub fn sink(arena: &Arena) -> PosixSink {
    PosixSink::new(arena.root_fd.clone(), arena.root_fd.clone(), None)
}

pub fn staged(lane: &mut dyn SinkLane, entry: &Entry, rule: PublishRule) -> store::Result<store::Staged> {
    lane.create(entry, rule)?;
    lane.write(INSIDE)?;
    lane.seal(entry, false)
}

pub fn d() -> Entry {
    Entry { kind: Kind::Directory, mode: 0o755, ..file(D, 0, "d") }
}

pub fn file(id: u64, parent: u64, name: &str) -> Entry {
    Entry {
        id: ObjectId(id),
        parent: ObjectId(parent),
        name: Name::new(name.as_bytes()).expect("a plain name"),
        kind: Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes: INSIDE.len() as u64, ..Generation::default() },
        attributes: None,
    }
}
