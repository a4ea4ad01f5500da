//! Parts of one file: what a sink does, and every order of the steps of those who share it.

use super::super::beneath::open_directory;
use super::super::staging;
use super::super::{PosixSink, host};
use super::*;
use crate::PublishRule;
use crate::sink::Sink;
use model::{Generation, Kind, ObjectId, Timestamp};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const OVER: &[u8] = b"over";

fn sink(root: &Path, host: &str, job: u8, instead_of: &[u8]) -> PosixSink {
    let root = Arc::new(open_directory(root).unwrap());
    let sink = PosixSink::new(root.clone(), root, None).on_host(host::named(host));
    let lost: Vec<_> = instead_of.iter().map(|job| JobId([*job; 16])).collect();
    sink.fence(JobId([job; 16]), &lost).unwrap();
    sink
}

fn entry(size_bytes: u64) -> Entry {
    let modified = Timestamp { seconds: 7, nanoseconds: 0 };
    Entry {
        id: ObjectId(1),
        parent: ObjectId::ROOT,
        name: Name::new(b"file").unwrap(),
        kind: Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes, modified, ..Generation::default() },
        attributes: None,
    }
}

fn content(parts: &Parts, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    assert_eq!(parts.content.read_at(0, &mut found).unwrap(), bytes);
    found
}

#[test]
fn slices_on_several_hosts_write_one_file_and_the_last_gives_it_its_name() {
    for root in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
        let root = root.path();
        let (a, b, last) = (sink(root, "a", 1, &[]), sink(root, "b", 2, &[]), sink(root, "b", 3, &[]));
        assert!(last.take_parts(&entry(8), "tag-stem").unwrap().is_none());
        let (first, none) = a.begin_part(&entry(8), "tag-stem", Extent::new(0, 4)).unwrap();
        let (second, _) = b.begin_part(&entry(8), "tag-stem", Extent::new(4, 8)).unwrap();
        assert_eq!(none.len(), 0);
        first.write_at(0, b"abcd").unwrap();
        second.write_at(4, b"efgh").unwrap();
        first.append_journal(b"first").unwrap();
        second.append_journal(b"second").unwrap();
        assert!(first.publish(&entry(8), PublishRule::Replace).is_err(), "a part has no name");
        // Whoever has the same part sees what was brought of it, and nothing of others.
        let (again, seen) = a.begin_part(&entry(8), "tag-stem", Extent::new(3, 4)).unwrap();
        assert_eq!(seen, [b"first".to_vec()]);
        again.discard();
        let parts = last.take_parts(&entry(8), "tag-stem").unwrap().unwrap();
        assert_eq!((content(&parts, 8), parts.journals.len()), (b"abcdefgh".to_vec(), 3));
        let file = last.begin_on_parts(&entry(8), "tag-stem").unwrap();
        file.make_durable(&entry(8)).unwrap();
        file.publish(&entry(8), PublishRule::Replace).unwrap();
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"abcdefgh");
        // What journals said of it is not said of another file.
        let (_, seen) = a.begin_part(&entry(8), "tag-stem", Extent::new(0, 4)).unwrap();
        assert_eq!(seen, [b""; 0]);
        last.drop_parts("tag-");
        let (top, _) = super::super::staging::tests::places(root);
        let left = std::fs::read_dir(top)
            .unwrap()
            .filter(|one| one.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(RANGES_PREFIX));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn who_is_taken_over_from_gives_no_name_and_what_was_brought_stays() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let part = sink(root, "a", 1, &[]);
    let (file, _) = part.begin_part(&entry(4), "tag-stem", Extent::new(0, 4)).unwrap();
    file.write_at(0, b"data").unwrap();
    let late = sink(root, "b", 2, &[]);
    late.take_parts(&entry(4), "tag-stem").unwrap().unwrap();
    let held = late.begin_on_parts(&entry(4), "tag-stem").unwrap();
    let next = sink(root, "c", 3, &[2]);
    let parts = next.take_parts(&entry(4), "tag-stem").unwrap().unwrap();
    assert_eq!((content(&parts, 4), parts.journals.len()), (b"data".to_vec(), 2));
    assert!(held.publish(&entry(4), PublishRule::Replace).is_err());
    assert!(late.take_parts(&entry(4), "tag-stem").is_err(), "it is void");
    assert!(!root.join("file").exists());
    // A run that begins anew goes on with it.
    drop(next);
    let anew = sink(root, "a", 4, &[1, 3]);
    let (_, seen) = anew.begin_part(&entry(4), "tag-stem", Extent::new(0, 4)).unwrap();
    assert_eq!(seen.len(), 2);
    assert!(part.begin_part(&entry(4), "tag-stem", Extent::new(0, 4)).is_err(), "it is void");
}

/// The source changed between the two: what they write together has another name for each.
#[test]
fn what_was_taken_over_does_not_replace_a_newer_version() {
    for root in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
        let root = root.path();
        let part = sink(root, "a", 1, &[]);
        let (file, _) = part.begin_part(&entry(3), "tag-v1", Extent::new(0, 3)).unwrap();
        file.write_at(0, b"old").unwrap();
        let late = sink(root, "b", 2, &[]);
        late.take_parts(&entry(3), "tag-v1").unwrap().unwrap();
        let held = late.begin_on_parts(&entry(3), "tag-v1").unwrap();
        let next = sink(root, "c", 3, &[2]);
        let mut lane = next.lane(true).unwrap();
        lane.create(&entry(3), PublishRule::Replace).unwrap();
        lane.write(b"new").unwrap();
        let staged = lane.seal(&entry(3), false).unwrap();
        lane.publish(&entry(3), staged).unwrap();
        assert!(held.publish(&entry(3), PublishRule::Replace).is_err());
        assert!(late.begin_on_parts(&entry(3), "tag-v1").is_err(), "it is void");
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"new");
        // Should the older one come back, what was brought of it is there, and that somebody may still write to it.
        let parts = next.take_parts(&entry(3), "tag-v1").unwrap().unwrap();
        assert_eq!((content(&parts, 3), parts.journals.len()), (b"old".to_vec(), 2));
    }
}

/// One step of somebody who shares a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// As in `begin` and `begin_on_all`: first a journal, then the data.
    Journal,
    Open,
    Write,
    Over,
    /// As in `take`: first the name, then the journals.
    Take,
    Look,
    Name,
    /// Whether its slice is void.
    Check,
    /// As in `fence::take_over`, of the first actor: the mark, and then its data. What is published after that is newer.
    Mark,
    Away,
    Newer,
}

use Step::{Away, Check, Journal, Look, Mark, Name as Named, Newer, Open, Over, Take, Write};

#[derive(Default)]
struct Actor {
    journal: Option<File>,
    data: Option<File>,
    /// It goes on with nothing.
    is_out: bool,
}

struct World<'a> {
    place: &'a Staging,
    path: &'a Path,
    actors: Vec<Actor>,
    /// What has a final name.
    named: Option<u64>,
    /// The first actor's slice was taken over.
    is_void: bool,
    is_newer: bool,
}

impl World<'_> {
    fn own_name(&self, actor: usize) -> CString {
        taken_name(JobId([actor as u8; 16]))
    }

    /// `is_closer` gives the data a name; false when it writes to what has its final name, or replaces what is newer.
    fn step(&mut self, actor: usize, step: Step, is_closer: bool) -> bool {
        let (own, first) = (self.own_name(actor), self.own_name(0));
        let name = if is_closer { own.clone() } else { DATA.to_owned() };
        let directory = self.place.directory.clone();
        if self.actors[actor].is_out {
            return true;
        }
        let one = &mut self.actors[actor];
        match step {
            Journal => one.journal = make_journal(self.place, &journal_name(Extent::new(0, 4))).unwrap(),
            Open => match open_staged(self.place, &name, OFlags::empty(), 1) {
                Ok(data) => one.data = Some(data.into()),
                Err(_) => one.is_out = true,
            },
            Write => {
                let data = one.data.as_ref().unwrap();
                data.write_all_at(b"x", 0).unwrap();
                return self.named != Some(data.metadata().unwrap().ino());
            }
            Over => std::io::Write::write_all(one.journal.as_mut().unwrap(), OVER).unwrap(),
            Take => match data_name(&directory).unwrap() {
                Some(there) if there == own || rename(&directory, &there, &own).unwrap() => {}
                _ => one.is_out = true,
            },
            Look => {
                let seen = journals(self.place, &|_, _| true).unwrap().unwrap();
                one.is_out = !seen.iter().all(|journal| journal == OVER);
            }
            Named => {
                let final_name = self.path.join("final");
                if std::fs::rename(self.path.join(own.to_str().unwrap()), &final_name).is_ok() {
                    self.named = Some(std::fs::metadata(&final_name).unwrap().ino());
                    return !self.is_newer;
                }
            }
            Check => one.is_out = self.is_void,
            Mark => self.is_void = true,
            Away => {
                if data_name(&directory).unwrap() == Some(first.clone()) {
                    rename(&directory, &first, DATA).unwrap();
                }
            }
            Newer => {
                std::fs::write(self.path.join("newer"), b"newer").unwrap();
                std::fs::rename(self.path.join("newer"), self.path.join("final")).unwrap();
                self.is_newer = true;
            }
        }
        true
    }
}

/// Carries out the schedules of these that may differ; returns how many there were, how often something got its name, and the first in which
/// what has its name was written to, or what is newer was replaced.
fn schedules(programs: &[&[Step]]) -> (usize, usize, Option<Vec<(usize, Step)>>) {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let host = staging::tests::open(root.path()).unwrap();
    let (mut count, mut named, mut wrong) = (0, 0, None);
    let mut at = vec![0; programs.len()];
    let mut order = Vec::new();
    each_order(programs, &mut at, &mut order, &mut |order| {
        let path = root.path().join("parts");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("data"), b"data").unwrap();
        let place = Staging::of_parts(Arc::new(open_directory(&path).unwrap()), &host);
        let actors = programs.iter().map(|_| Actor::default()).collect();
        let mut world = World { place: &place, path: &path, actors, named: None, is_void: false, is_newer: false };
        let is_right = order.iter().all(|(actor, step)| world.step(*actor, *step, programs[*actor].contains(&Take)));
        count += 1;
        named += usize::from(world.named.is_some());
        if !is_right && wrong.is_none() {
            wrong = Some(order.to_vec());
        }
        std::fs::remove_dir_all(&path).unwrap();
    });
    (count, named, wrong)
}

/// Whether it matters which of these steps of two comes first: journals and the mark are looked at, and names are taken and given,
/// by all.
fn is_touched(one: Step, other: Step) -> bool {
    match one {
        Journal | Over => other == Look,
        Look => matches!(other, Journal | Over),
        Write => other == Named,
        Open => matches!(other, Take | Named | Away),
        Take => matches!(other, Open | Take | Named | Away),
        Named => matches!(other, Write | Open | Take | Named | Away | Newer),
        Check => other == Mark,
        Mark => other == Check,
        Away => matches!(other, Open | Take | Named | Away),
        Newer => other == Named,
    }
}

/// Hears of one order in which the steps of all may come.
type Visit<'a> = dyn FnMut(&[(usize, Step)]) + 'a;

fn each_order(programs: &[&[Step]], at: &mut Vec<usize>, order: &mut Vec<(usize, Step)>, visit: &mut Visit<'_>) {
    if at.iter().zip(programs).all(|(at, program)| *at == program.len()) {
        return visit(order);
    }
    for actor in 0..programs.len() {
        if let Some(step) = programs[actor].get(at[actor]) {
            // Of orders that differ only in steps that do not touch each other, the first is enough.
            if order.last().is_some_and(|(last, before)| *last > actor && !is_touched(*before, *step)) {
                continue;
            }
            at[actor] += 1;
            order.push((actor, *step));
            each_order(programs, at, order, visit);
            order.pop();
            at[actor] -= 1;
        }
    }
}

/// Of a host that brings a part, of one that was given up while it completes the file, and of the one that takes over from it: a
/// process that stands still for long is one of these schedules.
#[test]
fn in_no_order_of_steps_is_what_has_its_final_name_written_to_by_anybody_else() {
    let part = [Journal, Open, Write, Over];
    let closer = [Take, Look, Journal, Open, Write, Named];
    let (count, named, wrong) = schedules(&[&part, &closer, &[Take, Look, Named]]);
    // Of 60,060.
    assert_eq!((count, wrong), (1174, None));
    assert!(named > 100, "{named}");
    let (count, named, wrong) = schedules(&[&part, &part, &[Take, Look, Named]]);
    // Of 11,550.
    assert_eq!((count, wrong), (172, None));
    assert!(named > 10, "{named}");
}

#[test]
fn the_order_of_steps_is_what_keeps_others_from_writing_to_it() {
    // The data before the journal, and the journals before the name.
    for (part, closer) in
        [([Open, Journal, Write, Over], [Take, Look, Named]), ([Journal, Open, Write, Over], [Look, Take, Named])]
    {
        assert!(schedules(&[&part, &closer]).2.is_some());
    }
}

/// Of the slice that completes a file and may stand still for long, and of whoever takes it over and publishes another version.
#[test]
fn in_no_order_of_steps_is_what_is_newer_replaced_by_what_was_taken_over() {
    let (closer, next) = ([Take, Check, Named], [Mark, Away, Newer]);
    let (count, named, wrong) = schedules(&[&closer, &next]);
    assert_eq!(wrong, None);
    assert!(count > 3 && named > 0, "{count} {named}");
    // The mark before the data is looked for, and the data before the mark is.
    assert!(schedules(&[&[Check, Take, Named], &next]).2.is_some());
    assert!(schedules(&[&closer, &[Away, Mark, Newer]]).2.is_some());
}
