//! What is taken and what is not, and that an honest sender is never refused: the chooser of `store` is asked too.

use super::super::by_hand::{Altered, Rig};
use super::*;
use crate::limits::LANE_BYTES;
use conformance::memory::Memory;
use model::filter::{Filter, Rule};
use model::selection::{Bounds, Listed};
use model::{Generation, Node, TransferOptions};
use proptest::prelude::*;
use store::posix::PosixSource;
use store::{Found, Source};
use wire::message::{Entries, EntryRecord};

const DIRECTORY: u32 = 1;

fn entry(id: u64, parent: u64, name: &str, kind: Kind) -> Entry {
    let generation = Generation { size_bytes: 5, ..Generation::default() };
    let name = Name::new(name.as_bytes()).unwrap();
    Entry { id: ObjectId(id), parent: ObjectId(parent), name, kind, mode: 0o644, generation, attributes: None }
}

fn described(entry: Entry) -> Described {
    Described::Entry { entry, end: End::Known, replaces: None }
}

fn asked(paths: &[&str], selection: Selection) -> Asked {
    let paths: Vec<_> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    Asked::of(&paths, Arc::new(selection))
}

/// What is refused of `entries`, described one after the other.
fn refused(mut asked: Asked, entries: &[(u64, u64, &str, Kind)]) -> Option<String> {
    let mut check = || {
        for (id, parent, name, kind) in entries {
            asked.check(&[described(entry(*id, *parent, name, kind.clone()))])?;
        }
        asked.end()
    };
    check().err().map(|refusal: Refusal| {
        let named = refusal.text.strip_prefix("sent ").expect("it says what was sent");
        named.split(", which was not asked for").next().unwrap().to_owned()
    })
}

fn rules(rules: &[&str]) -> Selection {
    let rules = rules.iter().map(|rule| Rule::parse(rule).unwrap()).collect();
    Selection { filter: Filter::new(rules).unwrap(), ..Selection::default() }
}

fn listed(paths: &[&str]) -> Selection {
    let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    Selection { listed: Some(Listed::new(paths).unwrap()), ..Selection::default() }
}

#[test]
fn at_the_top_only_the_last_names_of_what_was_asked_for_are_taken() {
    for (paths, name, is_taken) in [
        (&["report.pdf"][..], "report.pdf", true),
        (&["report.pdf"], ".bashrc", false),
        (&["report.pdf"], "report.pdf.exe", false),
        (&["a/b//c"], "c", true),
        (&["a/b//c"], "a", false),
        (&["a", "b/c"], "c", true),
        (&["a", "b/c"], "b", false),
        (&["a/"], "anything", true),
        (&["a/."], "anything", true),
        (&["."], "anything", true),
        (&[""], "anything", true),
        (&["x", "a/"], "anything", true),
        (&["/etc/passwd"], "passwd", true),
        (&["/etc/passwd"], "shadow", false),
        (&["a/.."], "anything", false),
        (&["gen:0x1"], "f000000000", false),
    ] {
        let found = refused(asked(paths, Selection::default()), &[(1, 0, name, Kind::File)]);
        assert_eq!(found, (!is_taken).then(|| name.to_owned()), "{paths:?} {name}");
    }
    // Of whatever kind it is, and what lies in it.
    let link = Kind::Symlink(b"/etc".to_vec().into());
    assert_eq!(refused(asked(&["d"], Selection::default()), &[(1, 0, "bin", link)]), Some("bin".into()));
    let tree = [(1, 0, "d", Kind::Directory), (2, 1, ".bashrc", Kind::File), (3, 0, ".ssh", Kind::Directory)];
    assert_eq!(refused(asked(&["d"], Selection::default()), &tree[..2]), None);
    assert_eq!(refused(asked(&["d"], Selection::default()), &tree), Some(".ssh".into()));
    let again = [(1, 0, "d", Kind::File), (REPLACEMENT_FIRST, 0, ".bashrc", Kind::File)];
    assert_eq!(refused(asked(&["d"], Selection::default()), &again), Some(".bashrc".into()));
}

#[test]
fn nothing_of_a_batch_is_taken_with_one_that_was_not_asked_for_and_no_end_is_no_file() {
    let mut one = asked(&["d/"], rules(&["- *.o"]));
    let batch = [described(entry(1, 0, "a", Kind::File)), described(entry(2, 0, "b.o", Kind::File))];
    let refusal = one.check(&batch).unwrap_err();
    assert_eq!(refusal.code, CloseCode::Limit);
    assert_eq!(refusal.text, "sent b.o, which was not asked for; the job was ended, and nothing of it was written");
    let endless = Described::Entry { entry: entry(1, 0, "d", Kind::File), end: End::ReadOnce, replaces: None };
    assert!(asked(&["d"], Selection::default()).check(&[endless]).is_err());
    let strange =
        Described::Entry { entry: entry(1, 0, &"\x1b".repeat(250), Kind::File), end: End::Known, replaces: None };
    let text = asked(&["d"], Selection::default()).check(&[strange]).unwrap_err().text;
    assert!(text.len() < 1024 && !text.contains('\x1b') && text.ends_with("written"), "{text}");
}

#[test]
fn rules_lists_and_bounds_hold_whatever_the_sender_says() {
    let d = |id, name| (id, 0, name, Kind::Directory);
    let f = |id, parent, name| (id, parent, name, Kind::File);
    for (selection, entries, found) in [
        (rules(&["- *.o"]), vec![f(1, 0, "a.c"), f(2, 0, "a.o")], Some("a.o")),
        (rules(&["- /x/"]), vec![d(1, "x")], Some("x")),
        (rules(&["- x/y"]), vec![d(1, "x"), f(2, 1, "z"), f(3, 1, "y")], Some("x/y")),
        (rules(&["+ *.c"]), vec![d(1, "x"), f(2, 1, "a.c")], None),
        (rules(&["+ *.c"]), vec![d(1, "x"), f(2, 1, "a.h")], Some("x/a.h")),
        // Empty directories on the way to nothing are no way to make directories.
        (rules(&["+ *.c"]), vec![d(1, "x"), d(2, "y")], Some("x")),
        (rules(&["+ *.c"]), vec![f(1, 0, "a.c"), d(2, "y")], Some("y")),
        (rules(&["+ docs/"]), vec![d(1, "docs"), f(2, 1, "any")], None),
        (listed(&["a/b", "c"]), vec![d(1, "a"), f(2, 1, "b"), f(3, 0, "c")], None),
        (listed(&["a/b"]), vec![d(1, "a"), f(2, 1, "c")], Some("a/c")),
        (listed(&["a/b"]), vec![f(1, 0, "a")], Some("a")),
        (listed(&["a/b"]), vec![f(1, 0, "d")], Some("d")),
        (listed(&["a/b"]), vec![d(1, "a")], Some("a")),
        (listed(&["."]), vec![f(1, 0, "any")], None),
    ] {
        assert_eq!(refused(asked(&["s/"], selection), &entries).as_deref(), found, "{entries:?}");
    }
    let bounds = Bounds { size_bytes_min: 6, ..Bounds::default() };
    let small = Selection { bounds, ..Selection::default() };
    assert_eq!(refused(asked(&["s/"], small.clone()), &[f(1, 0, "f")]), Some("f".into()));
    // It had the size when it was described first: what is too small now is passed over where it is decided.
    let again = [(1, 0, "d", Kind::Directory), f(REPLACEMENT_FIRST, 0, "f")];
    assert_eq!(refused(asked(&["s/"], small), &again), None);
    let device = Kind::Node(Node::Fifo);
    assert_eq!(refused(asked(&["s/"], rules(&["- p"])), &[(1, 0, "p", device)]), Some("p".into()));
}

#[test]
fn of_a_generated_source_only_its_own_files_are_taken() {
    let file = |id, parent, name: &'static str| (id, parent, name, Kind::File);
    let of = |spec: &str, entries: &[(u64, u64, &str, Kind)]| refused(asked(&[spec], Selection::default()), entries);
    assert_eq!(of("gen:2x5", &[file(1, 0, "f000000000"), file(2, 0, "f000000001")]), None);
    assert_eq!(of("gen:2x5", &[file(1, 0, "f000000002")]), Some("f000000002".into()));
    assert_eq!(of("gen:2x6", &[file(1, 0, "f000000000")]), Some("f000000000".into()));
    assert_eq!(of("gen:2x5", &[file(1, 0, ".bashrc")]), Some(".bashrc".into()));
    assert_eq!(of("gen:2x5", &[(1, 0, "f000000000", Kind::Directory)]), Some("f000000000".into()));
    let many = [(1, 0, "d000001", Kind::Directory), file(2, 1, "f000001000")];
    assert_eq!(of("gen:2000x5", &many), None);
    assert_eq!(of("gen:2000x5", &[many[0].clone(), file(2, 1, "f000000999")]), Some("d000001/f000000999".into()));
    assert_eq!(of("gen:2000x5", &[file(1, 0, "f000000000")]), Some("f000000000".into()));
}

#[test]
fn a_chain_of_directories_is_charged_with_all_that_is_kept_of_it_and_ends_the_job_without_room() {
    let (account, room_bytes) = (crate::Memory::of_endpoint(LANE_BYTES), 256 << 10);
    let rig = Rig::charged(Altered::of(&Memory::default()), TransferOptions::default(), account.clone());
    rig.job.hold_to(asked(&["s/"], rules(&["- *.o"])));
    let _rest = account.hold(account.free_to_hold_bytes() - room_bytes, "all else").unwrap();
    let describe = |id: u64| {
        let (parent, name, kind) = (id - 1, vec![b'd'; 255], DIRECTORY);
        let record = EntryRecord { parent, name, kind, mode: 0o755, ..EntryRecord::default() };
        rig.job.handle(Entries { job: 1, first: id, entries: vec![record] }.into()).unwrap();
    };
    // Each of them is charged with its name at least.
    (1..room_bytes as u64 / 255).take_while(|_| !rig.job.end.is_set()).for_each(describe);
    let ending = rig.job.end.get().expect("it has no room for so many");
    assert!(ending.to_string().contains("of memory (descriptions, names and attributes)"), "{ending}");
    let asked = rig.job.asked.get().unwrap().lock().unwrap();
    let bytes_of = |place: &Place| size_of::<Place>() + place.name.as_ref().map_or(0, |name| name.as_bytes().len());
    let kept: usize = asked.places.values().map(bytes_of).sum();
    assert!(asked.places.len() > 50 && kept < room_bytes, "{kept}");
}

#[test]
fn directories_are_held_to_rules_down_to_a_depth_and_refused_below_it() {
    let mut asked = asked(&["s/"], rules(&["- *.o"]));
    let directory = |id: u64| entry(id, id - 1, "d", Kind::Directory);
    asked.keep(&directory(1), DEPTH_MAX - 1, true);
    assert!(asked.check(&[described(directory(2))]).is_ok());
    let refusal = asked.check(&[described(directory(3))]).unwrap_err();
    assert!(refusal.code == CloseCode::Limit && refusal.text.contains("4096 levels deep"), "{refusal}");
    // What lies in the deepest one is held to them still.
    let mut is_taken = |name: &str| asked.check(&[described(entry(3, 2, name, Kind::File))]).is_ok();
    assert!(is_taken("f") && !is_taken("f.o"));
}

/// A tree with many names that rules may or may not match.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (at, path) in ["s/a", "s/b/a", "s/b/ab", "s/b/c/a", "s/ab/b/a", "s/c/c/c", "s/bb"].into_iter().enumerate() {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, vec![0; at * 3]).unwrap();
    }
    std::fs::create_dir(dir.path().join("s/empty")).unwrap();
    std::os::unix::fs::symlink("a", dir.path().join("s/l")).unwrap();
    dir
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn an_honest_sender_is_never_refused(
        rules in proptest::collection::vec(("[+-]", "/?[abcl*]{1,2}(/[abc*]{1,2})?/?"), 0..4),
        list in proptest::option::of(proptest::collection::vec("[abcl]{1,2}(/[abc]{1,2}){0,2}", 1..4)),
        size_bytes_min in 0u64..8,
        sources in proptest::sample::subsequence(vec!["s", "s/", "s/b", "s/b/", "s/ab/b/a", "s/."], 1..4),
    ) {
        let dir = tree();
        let rules = rules.into_iter().map(|(sign, pattern)| Rule { takes: sign == "+", pattern }).collect();
        let Ok(filter) = Filter::new(rules) else { return Ok(()) };
        let list = list.map(|paths| Listed::new(paths.into_iter().map(String::into_bytes).collect()).unwrap());
        let bounds = Bounds { size_bytes_min, ..Bounds::default() };
        let selection = Arc::new(Selection { filter, bounds, listed: list });
        let root = store::posix::beneath::open_directory(dir.path()).unwrap();
        let mut source = PosixSource::new();
        let paths: Vec<_> = sources.iter().map(|path| path.as_bytes().to_vec()).collect();
        for path in &paths {
            source.add_beneath(std::os::fd::AsFd::as_fd(&root), path).unwrap();
        }
        source.select(selection.clone());
        let mut asked = Asked::of(&paths, selection);
        let mut refused = None;
        source.scan(&mut |found| {
            if let Found::Object(object) = found {
                refused = refused.take().or_else(|| asked.check(&[described(object.entry)]).err());
            }
            true
        }).unwrap();
        prop_assert_eq!(refused.or_else(|| asked.end().err()), None);
    }
}
