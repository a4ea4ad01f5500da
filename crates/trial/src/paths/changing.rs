//! The calls under attack that remove, move, keep and describe: prune, backup, `rm -r`, `mv`, special files, other names,
//! attributes. As in `calls`; what a call removed or moved is put back through the directory's own descriptor.

use super::arena::{Arena, INSIDE, Pair};
use super::calls::{Call, D, METADATA, Round, call, d, file, landed, sink, staged};
use model::fidelity::Xattr;
use model::name::relative_path;
use model::{Attributes, Entry, Fidelity, Generation, Kind, Node, ObjectId, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat, symlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use store::posix::target::Target;
use store::posix::{PosixSink, change, generation_of};
use store::{Fate, LinkRule, Prune, PublishRule, Sink};

pub const CHANGING: &[Call] = &[
    call("prune", METADATA, Pair::Directory, prune_sub),
    call("prune-within", METADATA, Pair::Inner, prune_top),
    call("prune-to-backup", METADATA, Pair::Backup, prune_to_backup),
    call("backup-of-replaced", METADATA, Pair::Backup, backup_of_replaced),
    call("backup-below-swapped", METADATA, Pair::Directory, backup_of_replaced),
    call("remove-tree", METADATA, Pair::Directory, remove_tree),
    call("remove-tree-within", METADATA, Pair::Inner, remove_tree_within),
    call("move", METADATA, Pair::Directory, move_file),
    call("move-of-link", METADATA, Pair::File, move_file),
    call("make-node", METADATA, Pair::Directory, make_node),
    call("stage-node", METADATA, Pair::Staging, make_node_in_root),
    call("make-hard-link", METADATA, Pair::Directory, make_hard_link),
    call("hard-link-of-link", METADATA, Pair::File, make_hard_link),
    call("amend-file", METADATA, Pair::File, amend),
    call("amend-below-swapped", METADATA, Pair::Directory, amend),
    call("touch-file", METADATA, Pair::File, touch),
    call("finish-directory-whole", METADATA, Pair::Directory, finish_directory),
    call("publish-whole", METADATA, Pair::Directory, publish_whole),
];

/// Everything that a job may keep of an object.
fn whole(arena: &Arena) -> PosixSink {
    let fidelity = Fidelity {
        owner: true,
        group: true,
        numeric_ids: true,
        mode: true,
        xattrs: true,
        hard_links: true,
        specials: true,
        ..Fidelity::default()
    };
    sink(arena).with_fidelity(fidelity, true)
}

/// Other than what anything outside has.
fn described(entry: Entry, round: u64) -> Entry {
    let value = round.to_string().into_bytes().into_boxed_slice();
    let xattrs = vec![Xattr { name: (*b"user.trial").into(), value }];
    let attributes = Some(Arc::new(Attributes::new(1000 + (round % 2) as u32, 1000, 0, xattrs)));
    Entry { mode: 0o700 | (round % 8) as u32, attributes, ..entry }
}

/// A file below a directory's own descriptor, made if it is not there.
fn put_file(directory: BorrowedFd<'_>, name: &str) {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
    if let Ok(file) = openat(directory, name, flags, Mode::from_raw_mode(0o644)) {
        let _ = rustix::io::write(&file, INSIDE);
    }
}

fn put_directory(above: BorrowedFd<'_>, name: &str) -> Option<std::os::fd::OwnedFd> {
    match mkdirat(above, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => return None,
    }
    openat(above, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY, Mode::empty()).ok()
}

/// `sub/g` in the directory, which has the same outside.
fn put_sub(arena: &Arena) {
    if let Some(sub) = put_directory(arena.inside_fd.as_fd(), "sub") {
        put_file(sub.as_fd(), "g");
    }
}

/// `top/sub/g` and the link that is swapped with `top/sub`.
fn put_top(arena: &Arena) {
    let Some(top) = put_directory(arena.inside_fd.as_fd(), "top") else { return };
    // The swapper may have them the other way round, and both may be gone.
    let _ = symlinkat("../../../outside/d/sub", &top, "x");
    if let Some(sub) = put_directory(top.as_fd(), "sub") {
        put_file(sub.as_fd(), "g");
    }
}

fn put_f(arena: &Arena) {
    if statat(&arena.inside_fd, "f", AtFlags::SYMLINK_NOFOLLOW).is_err() {
        put_file(arena.inside_fd.as_fd(), "f");
    }
}

/// Removes one name of the directory that the source does not have.
fn prune(sink: &PosixSink, extra: &[u8]) {
    let _ = sink.make_directory(&d()).map(|()| {
        sink.prune(&mut Prune {
            directories: &[ObjectId(D)],
            is_listed: &|_, name| name.as_bytes() != extra,
            is_listed_alike: &|_, _| false,
            fate: &|_, _| Fate::Remove,
            is_rehearsal: false,
            removed: &mut |_, _| {},
            failed: &mut |_| {},
            goes_on: &|| true,
        });
    });
    sink.close();
}

fn prune_sub(arena: &Arena, _: u64) -> Round {
    put_sub(arena);
    prune(&sink(arena), b"sub");
    Ok(())
}

fn prune_top(arena: &Arena, _: u64) -> Round {
    put_top(arena);
    prune(&sink(arena), b"top");
    Ok(())
}

fn prune_to_backup(arena: &Arena, _: u64) -> Round {
    put_sub(arena);
    prune(&sink(arena).with_backup(Some(b"old/1")), b"sub");
    Ok(())
}

/// What is replaced gets its place among the backups first.
fn backup_of_replaced(arena: &Arena, _: u64) -> Round {
    put_f(arena);
    let sink = sink(arena).with_backup(Some(b"old/1"));
    let entry = file(2, D, "f");
    let _ = sink.make_directory(&d()).and_then(|()| sink.decide(&entry)).and_then(|_| {
        let mut lane = sink.lane(false)?;
        let staged = staged(&mut *lane, &entry, PublishRule::Replace)?;
        lane.publish(&entry, staged)
    });
    sink.close();
    Ok(())
}

fn target(arena: &Arena, path: &str) -> Option<Target> {
    let names = relative_path(path.as_bytes()).expect("a plain path");
    Target::beneath(arena.root_fd.as_fd(), &names, false, store::posix::beneath::Mounts::Kept).ok()
}

fn remove_tree(arena: &Arena, _: u64) -> Round {
    put_sub(arena);
    if let Some(target) = target(arena, "d/sub") {
        change::remove_tree(&target, &|| false, &mut |_, _| {});
    }
    Ok(())
}

fn remove_tree_within(arena: &Arena, _: u64) -> Round {
    put_top(arena);
    if let Some(target) = target(arena, "d/top") {
        change::remove_tree(&target, &|| false, &mut |_, _| {});
    }
    Ok(())
}

fn move_file(arena: &Arena, round: u64) -> Round {
    put_f(arena);
    let new = format!("moved-{round}");
    let (Some(from), Some(to)) = (target(arena, "d/f"), target(arena, &format!("d/{new}"))) else { return Ok(()) };
    if change::rename(&from, &to, false).is_ok() {
        renameat(&arena.inside_fd, &*new, &arena.inside_fd, "f")
            .map_err(|e| format!("what was moved is not inside: {e}"))?;
    }
    Ok(())
}

fn node(parent: u64, round: u64) -> Entry {
    let entry = file(2, parent, &format!("fifo-{round}"));
    described(Entry { kind: Kind::Node(Node::Fifo), generation: Generation::default(), ..entry }, round)
}

fn make_node(arena: &Arena, round: u64) -> Round {
    let (sink, entry) = (whole(arena), node(D, round));
    let made = sink.make_directory(&d()).and_then(|()| sink.make_node(&entry, PublishRule::NoReplace));
    sink.close();
    match made {
        Ok(true) => landed(arena, &format!("fifo-{round}"), AtFlags::empty()),
        _ => Ok(()),
    }
}

/// Owner, mode and time are given by name in staging, which is swapped.
fn make_node_in_root(arena: &Arena, round: u64) -> Round {
    let (sink, entry) = (whole(arena), node(0, round));
    let made = sink.make_node(&entry, PublishRule::NoReplace);
    sink.close();
    let removed = rustix::fs::unlinkat(&arena.root_fd, &*format!("fifo-{round}"), AtFlags::empty());
    match (made, removed) {
        (Ok(true), Err(e)) => Err(format!("what was made is not there: {e}")),
        _ => Ok(()),
    }
}

/// The file as it stands inside, so that it may get another name.
fn first(arena: &Arena) -> Option<Entry> {
    let status = statat(&arena.inside_fd, "f", AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(Entry { generation: generation_of(&status), ..file(2, D, "f") })
}

fn make_hard_link(arena: &Arena, round: u64) -> Round {
    put_f(arena);
    let Some(first) = first(arena) else { return Ok(()) };
    let name = format!("name-{round}");
    let entry = Entry { kind: Kind::HardLink(first.id), ..file(3, D, &name) };
    let rule = LinkRule { may_make: true, may_replace: false, ignores_time: false, is_rehearsal: false };
    let sink = whole(arena);
    let linked = sink.make_directory(&d()).and_then(|()| sink.make_hard_link(&first, &entry, rule));
    sink.close();
    match linked {
        Ok(store::Linked::Made { .. }) => landed(arena, &name, AtFlags::empty()),
        _ => Ok(()),
    }
}

fn amend(arena: &Arena, round: u64) -> Round {
    let sink = whole(arena);
    let _ = sink.make_directory(&d()).and_then(|()| sink.amend(&described(file(2, D, "f"), round)));
    Ok(())
}

fn touch(arena: &Arena, round: u64) -> Round {
    let modified = Timestamp { seconds: 1_000_000 + round as i64, nanoseconds: 1 };
    let entry = Entry { generation: Generation { modified, ..Generation::default() }, ..file(2, D, "f") };
    let sink = sink(arena);
    let _ = sink.make_directory(&d()).and_then(|()| sink.touch(&entry));
    Ok(())
}

fn finish_directory(arena: &Arena, round: u64) -> Round {
    let (sink, entry) = (whole(arena), described(d(), round));
    let _ = sink.make_directory(&entry).and_then(|()| sink.finish_directory(&entry));
    Ok(())
}

fn publish_whole(arena: &Arena, round: u64) -> Round {
    let sink = whole(arena);
    let name = format!("pub-{round}");
    let entry = described(file(2, D, &name), round);
    let published = sink.make_directory(&d()).and_then(|()| {
        let mut lane = sink.lane(false)?;
        let staged = staged(&mut *lane, &entry, PublishRule::NoReplace)?;
        lane.publish(&entry, staged)
    });
    sink.close();
    match published {
        Ok(()) => landed(arena, &name, AtFlags::empty()),
        Err(_) => Ok(()),
    }
}
