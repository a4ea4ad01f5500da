//! Content that is kept: compared when it is read, and wanted again where it is not what it was.

use super::hold::{Content, DIRECTORY, Hold, OfSet, SetNow, name_of};
use super::sink::Blobs;
use super::*;
use crate::sets::Kept;
use model::selection::Listed;
use model::set::{Catalogue, Note, SetFile};
use model::{
    Digest, DigestAlgorithm, Entry, Generation, Kind, Location, ObjectId, Timestamp, TransferOptions, VersionToken,
};
use std::time::{Duration, UNIX_EPOCH};
use store::Decision;
use store::open::{Opener, Rights, Shape, SinkRequest};
use transfer::part;

fn root(bytes: &[u8]) -> [u8; 32] {
    match DigestAlgorithm::Blake3.of_object(bytes) {
        Digest::Blake3(root) => root,
        other => panic!("{other:?}"),
    }
}

fn set(content: &[u8]) -> OfSet {
    let mut catalogue = Catalogue::new(1 << 20);
    let file = SetFile { path: b"f"[..].into(), size_bytes: content.len() as u64, modified: 0, root: root(content) };
    catalogue.add(file, &[]).unwrap();
    let note = Note {
        name: "a/b".into(),
        serial: 1,
        catalogue: [0; 32],
        catalogue_bytes: 1,
        files: 1,
        bytes: content.len() as u64,
        chunk_bytes: 1 << 20,
        readers: Readers::Public,
        key: "k".into(),
        mirrors: Vec::new(),
    };
    OfSet(Arc::new(SetNow { note, catalogue: Arc::new(catalogue), holders: Vec::new() }))
}

fn read(content: &Content) -> Vec<u8> {
    let mut buffer = vec![0; 100];
    let read = content.read_at(0, &mut buffer).unwrap();
    buffer[..read].to_vec()
}

#[test]
fn what_is_read_is_compared_and_rot_is_fetched_again_and_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let set = set(b"content");
    let name = name_of(&set.0.key(&set.0.catalogue.files()[0])).to_string();
    std::fs::create_dir(directory.path().join(DIRECTORY)).unwrap();
    let at = directory.path().join(DIRECTORY).join(name);
    std::fs::write(&at, b"content").unwrap();
    let hold = Hold::open(directory.path(), 1000).unwrap();
    assert_eq!(read(&hold.content(&set, 0, 0).unwrap()), b"content");
    std::fs::write(&at, b"CONTENT").unwrap();
    std::thread::scope(|scope| {
        // Stands in for whoever fetches: what is wanted comes right this time.
        let fetcher = scope.spawn(|| {
            let Some(batch) = hold.next_batch() else { return false };
            let is_gone = !at.exists();
            std::fs::write(&at, b"content").unwrap();
            batch.files.iter().for_each(|(key, _)| hold.arrived(key, 7));
            is_gone
        });
        let content = hold.content(&set, 0, 0).map(|content| read(&content));
        hold.end();
        assert!(fetcher.join().unwrap(), "what rotted is gone");
        assert_eq!(content.unwrap(), b"content");
    });
}

#[test]
fn what_cannot_be_opened_for_now_can_be_read_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let set = set(b"content");
    let name = name_of(&set.0.key(&set.0.catalogue.files()[0])).to_string();
    let (at, away) = (directory.path().join(DIRECTORY).join(name), directory.path().join("away"));
    std::fs::create_dir(directory.path().join(DIRECTORY)).unwrap();
    std::fs::write(&at, b"content").unwrap();
    let hold = Hold::open(directory.path(), 1000).unwrap();
    std::fs::rename(&at, &away).unwrap();
    std::os::unix::fs::symlink(&away, &at).unwrap();
    assert!(hold.content(&set, 0, 0).is_err(), "a link is not followed");
    std::fs::rename(&away, &at).unwrap();
    assert_eq!(read(&hold.content(&set, 0, 0).unwrap()), b"content");
}

/// A cache that found it as it should be, and kept no account of it, would say for ever that nobody has it.
#[test]
fn a_file_that_lies_there_without_being_held_is_fetched_again() {
    let directory = tempfile::tempdir().unwrap();
    let (set, hold) = (set(b"content"), Hold::open(directory.path(), 1000).unwrap());
    let key = set.0.key(&set.0.catalogue.files()[0]);
    let at = directory.path().join(DIRECTORY).join(name_of(&key).to_string());
    std::fs::write(&at, b"content").unwrap();
    let modified = UNIX_EPOCH + Duration::from_secs(1_000_000);
    std::fs::File::options().write(true).open(&at).unwrap().set_modified(modified).unwrap();
    let options = TransferOptions::default();
    let (rights, shape) = (Rights::of(&options), Shape::Tree);
    let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
    let blobs = Blobs { hold: hold.clone(), set: set.clone(), catalogue: set.0.catalogue.clone() };
    let sink = blobs.sink(&Location::Null, &request).unwrap().sink;
    let generation = Generation {
        size_bytes: 7,
        modified: Timestamp { seconds: 1_000_000, nanoseconds: 0 },
        version: VersionToken::default(),
    };
    let (id, parent, name) = (ObjectId(1), ObjectId::ROOT, Name::new(b"f").unwrap());
    let entry = Entry { id, parent, name, kind: Kind::File, mode: 0o600, generation, attributes: None };
    assert!(matches!(sink.decide(&entry).unwrap(), Decision::Replace { size_bytes: 7, .. }));
    hold.arrived(&key, 7);
    assert!(matches!(sink.decide(&entry).unwrap(), Decision::Same));
    let (file, _) = sink.begin(&entry, "stem").unwrap();
    file.write_at(0, b"content").unwrap();
    assert!(file.allocated_bytes() > 0, "it takes room");
}

#[test]
fn of_a_list_a_cache_serves_the_files_and_what_lies_in_its_directories() {
    let mut catalogue = Catalogue::new(1 << 20);
    for path in ["a", "b-c", "b/1", "b/2/3", "c"] {
        let file = SetFile { path: path.as_bytes().into(), size_bytes: 1, modified: 0, root: [0; 32] };
        catalogue.add(file, &[]).unwrap();
    }
    let below = |paths: &[&str]| {
        let listed = Listed::new(paths.iter().map(|path| path.as_bytes().to_vec()).collect()).unwrap();
        let found = part(&catalogue, source::below(&catalogue, &listed.paths));
        found.files().iter().map(|file| String::from_utf8(file.path.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(below(&["c", "./b/", "b/1", "absent", "a/x"]), ["b/1", "b/2/3", "c"]);
    assert_eq!(below(&["."]).len(), 5);
    assert!(below(&[]).is_empty());
}

#[test]
fn content_of_a_set_with_readers_is_its_own() {
    let public = set(b"content");
    let of = |name: &str| {
        let note = Note { name: name.into(), readers: Readers::Only(vec![Pin([1; 32])]), ..public.0.note.clone() };
        SetNow { note, catalogue: public.0.catalogue.clone(), holders: Vec::new() }
    };
    let key = |set: &SetNow| set.key(&set.catalogue.files()[0]);
    assert_eq!(key(&of("a/c")), key(&of("a/c")));
    assert!(key(&of("a/c")) != key(&public.0) && key(&of("a/c")) != key(&of("a/d")));
}

#[test]
fn whoever_waits_hears_that_nobody_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let (set, hold) = (set(b"content"), Hold::open(directory.path(), 1000).unwrap());
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| hold.content(&set, 0, 0).map(drop))).collect();
        let batch = hold.next_batch().unwrap();
        hold.ended(&batch, "nobody has it");
        // Some may have come later: they have it tried again.
        hold.end();
        for reader in readers {
            let told = reader.join().unwrap().unwrap_err().to_string();
            assert!(told.contains("nobody has it") || told.contains("being stopped"), "{told}");
        }
    });
}

#[test]
fn a_path_at_a_cache_is_the_name_of_a_set() {
    let names = |path: &str| model::name::relative_path(path.as_bytes()).unwrap();
    assert_eq!(asked(&names("example.org/a")).unwrap().set, "example.org/a");
    let own = asked(&names("example.org/a/.thalweg-set")).unwrap();
    assert!(own.is_own && own.set == "example.org/a");
    for path in ["", ".thalweg-set", "a/.thalweg-set/note", "a b", ".a"] {
        assert!(asked(&names(path)).is_err(), "{path}");
    }
}

#[test]
fn a_set_goes_to_its_readers_alone() {
    let only = Readers::Only(vec![Pin([1; 32])]);
    assert!(admit("a", &only, Some(Pin([1; 32]))).is_ok() && admit("a", &Readers::Public, None).is_ok());
    assert!(admit("a", &only, Some(Pin([2; 32]))).is_err() && admit("a", &only, None).is_err());
}

#[test]
fn a_look_whether_a_set_may_be_fetched_leaves_nothing_behind_and_heeds_a_note_that_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (root, state) = (directory.path().join("root"), directory.path().join("state"));
    std::fs::create_dir(&root).unwrap();
    let (options, key) = (CacheOptions { origins: Vec::new(), size_bytes: 1000 }, Identity::generate().unwrap());
    let cache = Cache::open(&root, &options, &key, &state).unwrap();
    let check = |name: &str| cache.check(None, &model::name::relative_path(name.as_bytes()).unwrap());
    for name in ["a/b", "a/c", "a/d/.thalweg-set"] {
        check(name).unwrap();
    }
    assert!(!state.exists(), "nobody knows them");
    let kept = Kept::below(&state, "a/b").unwrap();
    let readers = Readers::Only(vec![Pin([1; 32])]);
    let note = Note { readers, key: net::note::public_key(&key, "a/b").write(), ..set(b"content").0.note.clone() };
    let signed = net::note::sign(note.write(), &[(&key, "a/b")]).write();
    kept.keep(signed.as_bytes(), &kept.lock().unwrap()).unwrap();
    assert_eq!(check("a/b").unwrap_err().exit, Exit::Refused);
    check("a/c").unwrap();
}
