//! Names appear in one step, and only where the rule lets them.

use crate::Ability::{
    Changes, Conditional, Directories, Keeps, Modes, OneByOne, ReadsStaged, Sink, Source, Stages, Touch,
};
use crate::check::{Check, Fault, ensure};
use crate::job::{Attempt, MODIFIED, content, hostile_names, name, published, read_to_end, scan, stage};
use crate::stand::Place;
use model::{Entry, FailureKind, ObjectId, Timestamp};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use store::{Decision, PublishRule, ToPublish};

pub const CHECKS: &[Check] = &[
    Check {
        name: "small-round-trip",
        says: "a small object has the content that was written",
        takes: &[Sink, Keeps],
        run: small_round_trip,
    },
    Check {
        name: "large-round-trip",
        says: "a large object has the content that was written",
        takes: &[Sink, Keeps],
        run: large_round_trip,
    },
    Check {
        name: "empty-files",
        says: "empty files are published as empty files, the small way and the large way",
        takes: &[Sink, Keeps, Stages],
        run: empty_files,
    },
    Check {
        name: "no-replace-refuses",
        says: "publishing a small object that may replace nothing fails where something stands, and that stays",
        takes: &[Sink, Keeps, Stages],
        run: no_replace,
    },
    Check {
        name: "large-no-replace-refuses",
        says: "publishing a large object that may replace nothing fails where something stands, and that stays",
        takes: &[Sink, Keeps, Stages],
        run: large_no_replace,
    },
    Check {
        name: "replace-is-one-step",
        says: "while an object is replaced again and again, its name always shows one whole version",
        takes: &[Sink, Source, Keeps, Stages],
        run: one_step,
    },
    Check {
        name: "replace-only-what-was-decided-on",
        says: "an object that changed after the decision is not replaced",
        takes: &[Sink, Keeps, Stages, Changes, Conditional],
        run: decided_version,
    },
    Check {
        name: "publish-by-any-thread",
        says: "what one lane staged is published by the sink from another thread, in any order",
        takes: &[Sink, Keeps, Stages],
        run: any_thread,
    },
    Check {
        name: "publish-in-groups",
        says: "many small files of several lanes are synced in groups and published, and every one is whole",
        takes: &[Sink, Source, Keeps, Stages, Directories],
        run: in_groups,
    },
    Check {
        name: "publish-group-tells-each",
        says: "of a group that is published each object is told once, by its place, failures among them, also of those that were \
               under way when the caller had enough",
        takes: &[Sink, Keeps, Stages],
        run: |place| group_told(place).map(drop),
    },
    Check {
        name: "publish-group-stops",
        says: "of a group that is published one by one no more are begun after the caller has had enough",
        takes: &[Sink, Keeps, Stages, OneByOne],
        run: group_stops,
    },
    Check {
        name: "decide-absent",
        says: "a name at which nothing stands is decided to be absent",
        takes: &[Sink, Stages],
        run: decide_absent,
    },
    Check {
        name: "decide-same",
        says: "a file of equal size and time is decided to be the same",
        takes: &[Sink, Keeps, Stages, Touch],
        run: decide_same,
    },
    Check {
        name: "decide-replace",
        says: "a file of another size or time is to be replaced, and its size and time are told",
        takes: &[Sink, Keeps, Stages, Touch],
        run: decide_replace,
    },
    Check {
        name: "decide-in-groups",
        says: "a group is decided in its order, each object as it would be alone, behind what was decided before",
        takes: &[Sink, Keeps, Stages, Touch],
        run: decide_in_groups,
    },
    Check {
        name: "times-are-kept",
        says: "a published file has the modification time of its entry, to the nanosecond or as far as the store keeps times",
        takes: &[Sink, Source, Keeps, Stages, Touch],
        run: times,
    },
    Check {
        name: "modes-are-kept",
        says: "a published file has the permission bits of its entry",
        takes: &[Sink, Source, Keeps, Stages, Modes],
        run: modes,
    },
    Check {
        name: "names-are-bytes",
        says: "names of any bytes are kept as they are: line ends, what is not UTF-8, 255 bytes",
        takes: &[Sink, Source, Keeps, Stages],
        run: names_are_bytes,
    },
    Check {
        name: "entries-have-paths",
        says: "the path of an entry, for reports, is its names below the destination",
        takes: &[Sink, Keeps, Stages, Directories],
        run: paths,
    },
    Check {
        name: "published-is-readable",
        says: "what stands at an entry's name can be opened to be compared",
        takes: &[Sink, Keeps, Stages, Touch, ReadsStaged],
        run: readable,
    },
];

const FILE: &[u8] = b"file";

fn file(job: &Attempt, size: usize) -> Entry {
    job.file(ObjectId::ROOT, name("file"), size)
}

fn small_round_trip(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 3000);
    job.put(&file(&job, bytes.len()), &bytes, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "other bytes are there");
    job.close(place)
}

fn large_round_trip(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 3_000_000);
    job.put_large(&file(&job, bytes.len()), &bytes, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "other bytes are there");
    job.close(place)
}

fn empty_files(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    job.put(&job.file(ObjectId::ROOT, name("small"), 0), b"", PublishRule::NoReplace)?;
    job.put_large(&job.file(ObjectId::ROOT, name("large"), 0), b"", PublishRule::NoReplace)?;
    for path in [&b"small"[..], b"large"] {
        ensure!(place.content(path)?.is_some_and(|bytes| bytes.is_empty()), "{} is not there", path.escape_ascii());
    }
    job.close(place)
}

fn refused(result: store::Result<()>) -> Result<(), Fault> {
    let kind = result.err().map(|e| e.kind);
    ensure!(kind == Some(FailureKind::InTheWay), "publishing came to {kind:?} instead of \"in the way\"");
    Ok(())
}

fn no_replace(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let entry = file(&job, 6);
    let mut lane = job.lane()?;
    let early = stage(&mut *lane, &entry, b"before", PublishRule::NoReplace)?;
    // What appears between the decision and the publishing is what the rule is for.
    job.put(&entry, b"theirs", PublishRule::NoReplace)?;
    let by_lane = job.try_put(&entry, b"ours!!", PublishRule::NoReplace);
    let by_sink = job.sink.publish(&entry, early);
    ensure!(place.content(FILE)?.as_deref() == Some(b"theirs"), "what stood there is gone");
    refused(by_lane)?;
    refused(by_sink)?;
    drop(lane);
    job.close(place)
}

fn large_no_replace(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let entry = file(&job, 6);
    let staged = job.begin(&entry)?;
    staged.write_at(0, b"ours!!")?;
    job.put(&entry, b"theirs", PublishRule::NoReplace)?;
    let result = staged.publish(&entry, PublishRule::NoReplace);
    ensure!(place.content(FILE)?.as_deref() == Some(b"theirs"), "what stood there is gone");
    refused(result)?;
    staged.discard();
    drop(staged);
    job.close(place)
}

fn one_step(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let versions = [content(1, 20_000), content(2, 30_000)];
    let entries = versions.each_ref().map(|bytes| file(&job, bytes.len()));
    job.put(&entries[0], &versions[0], PublishRule::NoReplace)?;
    let is_over = AtomicBool::new(false);
    let look = || {
        let mut looks = 0;
        while !is_over.load(Relaxed) || looks < 20 {
            let now = place.content(FILE)?.ok_or_else(|| Fault::new("for a moment nothing was there"))?;
            ensure!(versions.contains(&now), "for a moment it was {} bytes of no version", now.len());
            looks += 1;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let looking = scope.spawn(look);
        let replaced = (0..40).try_for_each(|round| {
            let (entry, bytes) = (&entries[round % 2], &versions[round % 2]);
            match round % 4 < 2 {
                true => job.put(entry, bytes, PublishRule::Replace),
                false => job.put_large(entry, bytes, PublishRule::Replace),
            }
        });
        is_over.store(true, Relaxed);
        replaced.and(looking.join().expect("a looker returns"))
    })?;
    job.close(place)
}

fn decided_version(place: &dyn Place) -> Result<(), Fault> {
    for is_large in [false, true] {
        place.put(&name("file"), b"first");
        let job = Attempt::at(place)?;
        let entry = file(&job, 7);
        ensure!(matches!(job.sink.decide(&entry)?, Decision::Replace { .. }), "it was not decided to replace it");
        place.put(&name("file"), b"second!");
        let result = match is_large {
            true => {
                let staged = job.begin(&entry)?;
                staged.write_at(0, b"ours...")?;
                let result = staged.publish(&entry, PublishRule::Replace);
                staged.discard();
                result
            }
            false => job.try_put(&entry, b"ours...", PublishRule::Replace),
        };
        ensure!(result.is_err(), "what nobody had decided on was replaced");
        ensure!(place.content(FILE)?.as_deref() == Some(b"second!"), "what stood there is gone");
        job.sink.decide(&entry)?;
        job.put(&entry, b"decided", PublishRule::Replace)?;
        ensure!(place.content(FILE)?.as_deref() == Some(b"decided"), "after a new decision it was not replaced");
        job.close(place)?;
    }
    Ok(())
}

fn any_thread(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let mut lane = job.lane()?;
    let mut all = Vec::new();
    for number in 0..20u64 {
        let entry = job.file(ObjectId::ROOT, name(&format!("f{number}")), 500);
        let staged = stage(&mut *lane, &entry, &content(number, 500), PublishRule::NoReplace)?;
        all.push((entry, staged));
    }
    std::thread::scope(|scope| {
        let publish = || all.iter().rev().try_for_each(|(entry, staged)| job.sink.publish(entry, *staged));
        scope.spawn(publish).join().expect("a publisher returns")
    })?;
    for number in 0..20u64 {
        let path = format!("f{number}");
        ensure!(place.content(path.as_bytes())? == Some(content(number, 500)), "{path} is not what was staged");
    }
    drop(lane);
    job.close(place)
}

fn in_groups(place: &dyn Place) -> Result<(), Fault> {
    const LANES: usize = 4;
    const FILES: usize = 150;
    let job = Attempt::at(place)?;
    let size = |lane: usize, number: usize| (lane * 31 + number * 37) % 3000;
    let directories: Vec<_> =
        (0..LANES).map(|lane| job.directory(ObjectId::ROOT, name(&format!("d{lane}")))).collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let run = |lane: usize| -> Result<(), Fault> {
            let mut own = job.lane()?;
            for group in 0..FILES / 50 {
                let mut staged = Vec::new();
                for number in group * 50..(group + 1) * 50 {
                    let bytes = content((lane * FILES + number) as u64, size(lane, number));
                    let entry = job.file(directories[lane].id, name(&format!("f{number}")), bytes.len());
                    staged.push((stage(&mut *own, &entry, &bytes, PublishRule::NoReplace)?, entry));
                }
                let is_all = job.sink.sync_group(&mut staged.iter().map(|(staged, _)| *staged))?;
                staged.iter().try_for_each(|(staged, entry)| job.sink.publish(entry, *staged))?;
                if !is_all {
                    job.sink.sync_names()?;
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..LANES).map(|lane| scope.spawn(move || run(lane))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a lane returns"))
    })?;
    job.sink.sync_names()?;
    let found = published(place)?;
    for lane in 0..LANES {
        for number in 0..FILES {
            let path = format!("d{lane}/f{number}");
            let bytes = content((lane * FILES + number) as u64, size(lane, number));
            let there = found.get(path.as_bytes()).cloned().and_then(crate::job::Seen::into_content);
            ensure!(there == Some(bytes), "{path} is not what was staged");
        }
    }
    ensure!(found.len() == LANES * (FILES + 1), "{} objects are there", found.len());
    job.close(place)
}

fn group_stops(place: &dyn Place) -> Result<(), Fault> {
    let told = group_told(place)?;
    ensure!(told == 4, "{told} were published, and the caller had enough with four");
    Ok(())
}

/// Publishes a group for a caller who has enough with four; returns of how many it was told.
fn group_told(place: &dyn Place) -> Result<usize, Fault> {
    let job = Attempt::at(place)?;
    let mut lane = job.lane()?;
    let mut staged = Vec::new();
    for number in 0..6u64 {
        let entry = job.file(ObjectId::ROOT, name(&format!("f{number}")), 300);
        staged.push((stage(&mut *lane, &entry, &content(number, 300), PublishRule::NoReplace)?, entry));
    }
    job.put(&job.file(ObjectId::ROOT, name("f1"), 6), b"theirs", PublishRule::NoReplace)?;
    let group: Vec<_> = staged.iter().map(|(staged, entry)| ToPublish { entry, staged: *staged }).collect();
    let mut heard = Vec::new();
    job.sink.publish_group(&group, &mut |place, result| {
        heard.push((place, result.err().map(|e| e.kind)));
        heard.len() < 4
    });
    heard.sort_unstable_by_key(|(place, _)| *place);
    let mut places: Vec<_> = heard.iter().map(|(place, _)| *place).collect();
    places.dedup();
    ensure!(places.len() == heard.len(), "one was told of twice: {heard:?}");
    for (place, failed) in &heard {
        let expected = (*place == 1).then_some(FailureKind::InTheWay);
        ensure!(*failed == expected, "object {place} came to {failed:?} instead of {expected:?}");
    }
    let there = (0..6u64).filter(|number| {
        let path = format!("f{number}");
        place.content(path.as_bytes()).ok().flatten() == Some(content(*number, 300))
    });
    let (there, told) = (there.count(), heard.iter().filter(|(_, failed)| failed.is_none()).count());
    ensure!(there == told, "{there} objects are there, and {told} were told of");
    staged.iter().for_each(|(staged, _)| job.sink.discard(*staged));
    drop(lane);
    job.close(place)?;
    Ok(heard.len())
}

fn decide_in_groups(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    for (text, bytes) in [("same", &b"one"[..]), ("other", b"two!")] {
        job.put(&job.file(ObjectId::ROOT, name(text), bytes.len()), bytes, PublishRule::NoReplace)?;
    }
    job.close(place)?;
    let job = Attempt::at(place)?;
    let described = |text: &str| job.file(ObjectId::ROOT, name(text), 3);
    let group = [described("none"), described("same"), described("other")];
    let mut found = Vec::new();
    job.sink.decide_group(&mut group[..1].iter(), &mut found);
    job.sink.decide_group(&mut group.iter(), &mut found);
    let told: Vec<_> = found
        .into_iter()
        .map(|decision| match decision {
            Ok(Decision::Absent) => "absent",
            Ok(Decision::Same) => "same",
            Ok(Decision::Replace { size_bytes: 4, .. }) => "replace",
            _ => "something else",
        })
        .collect();
    ensure!(told == ["absent", "absent", "same", "replace"], "it was decided {told:?}");
    job.close(place)
}

fn decide_absent(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let decision = job.sink.decide(&file(&job, 3))?;
    ensure!(matches!(decision, Decision::Absent), "it was decided {decision:?}");
    job.close(place)
}

fn decide_same(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    job.put(&file(&job, 3), b"one", PublishRule::NoReplace)?;
    job.close(place)?;
    let job = Attempt::at(place)?;
    let decision = job.sink.decide(&file(&job, 3))?;
    ensure!(matches!(decision, Decision::Same), "it was decided {decision:?}");
    job.close(place)
}

fn decide_replace(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    job.put(&file(&job, 3), b"one", PublishRule::NoReplace)?;
    let mut later = file(&job, 3);
    later.generation.modified.nanoseconds += 1;
    if place.kept(later.generation.modified) == place.kept(MODIFIED) {
        later.generation.modified.seconds += 1;
    }
    for (what, entry) in [("size", file(&job, 4)), ("time", later)] {
        match job.sink.decide(&entry)? {
            Decision::Replace { size_bytes: 3, there } if there.is_file && there.modified == place.kept(MODIFIED) => {}
            decision => return Err(Fault::new(format!("another {what}: it was decided {decision:?}"))),
        }
    }
    job.close(place)
}

/// The entry of the one object that is published.
fn only(place: &dyn Place) -> Result<Entry, Fault> {
    let source = place.source().ok_or_else(|| Fault::new("there is no source"))?;
    let mut objects = scan(&*source)?;
    ensure!(objects.len() == 1, "{} objects are there instead of one", objects.len());
    Ok(objects.remove(0).entry)
}

fn times(place: &dyn Place) -> Result<(), Fault> {
    for modified in
        [MODIFIED, Timestamp { seconds: 1, nanoseconds: 999_999_999 }, Timestamp { seconds: 0, nanoseconds: 0 }]
    {
        for is_large in [false, true] {
            let job = Attempt::at(place)?;
            let mut entry = file(&job, 3);
            entry.generation.modified = modified;
            job.sink.decide(&entry)?;
            match is_large {
                true => job.put_large(&entry, b"one", PublishRule::Replace)?,
                false => job.put(&entry, b"one", PublishRule::Replace)?,
            }
            job.close(place)?;
            let there = only(place)?.generation.modified;
            let modified = place.kept(modified);
            ensure!(there == modified, "it has the time {there:?} instead of {modified:?}");
        }
    }
    Ok(())
}

fn modes(place: &dyn Place) -> Result<(), Fault> {
    for mode in [0o600, 0o444, 0o755, 0o640] {
        for is_large in [false, true] {
            let job = Attempt::at(place)?;
            let entry = Entry { mode, ..with_attributes(file(&job, 3)) };
            job.sink.decide(&entry)?;
            match is_large {
                true => job.put_large(&entry, b"one", PublishRule::Replace)?,
                false => job.put(&entry, b"one", PublishRule::Replace)?,
            }
            job.close(place)?;
            let there = only(place)?.mode;
            ensure!(there == mode, "it has the mode {there:o} instead of {mode:o}");
        }
    }
    Ok(())
}

/// As a job describes what it keeps besides content.
pub fn with_attributes(entry: Entry) -> Entry {
    let attributes = model::Attributes::new(0, 0, 1, Vec::new());
    Entry { attributes: Some(std::sync::Arc::new(attributes)), ..entry }
}

fn names_are_bytes(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let all: Vec<_> = hostile_names().into_iter().filter(|name| place.can_say(name)).collect();
    for (seed, hostile) in all.iter().enumerate() {
        let bytes = content(seed as u64, 40);
        let entry = job.file(ObjectId::ROOT, hostile.clone(), bytes.len());
        job.sink.decide(&entry)?;
        job.put(&entry, &bytes, PublishRule::NoReplace)?;
    }
    let found = published(place)?;
    for (seed, hostile) in all.iter().enumerate() {
        let there = found.get(hostile.as_bytes()).cloned().and_then(crate::job::Seen::into_content);
        ensure!(there == Some(content(seed as u64, 40)), "{hostile} is not what was published");
    }
    ensure!(found.len() == all.len(), "{} names became {}", all.len(), found.len());
    job.close(place)
}

fn paths(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let above = job.directory(ObjectId::ROOT, name("d"))?;
    let below = job.directory(above.id, name("inner"))?;
    let entry = job.file(below.id, name("file"), 0);
    for (entry, expected) in [(&above, "d"), (&below, "d/inner"), (&entry, "d/inner/file")] {
        let path = job.sink.path(entry);
        ensure!(path == expected.as_bytes(), "{expected} is told as {}", model::name::Escaped(&path));
    }
    job.close(place)
}

fn readable(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 100_000);
    let entry = file(&job, bytes.len());
    job.put(&entry, &bytes, PublishRule::NoReplace)?;
    let read = read_to_end(&*job.sink.open_published(&entry)?)?;
    ensure!(read == bytes, "other bytes came");
    ensure!(
        job.sink.open_published(&job.file(ObjectId::ROOT, name("none"), 0)).is_err(),
        "what is not there was opened"
    );
    job.close(place)
}
