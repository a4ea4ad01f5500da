//! Listing and reading.

use crate::Ability::{Changes, ReadsOnce, Rereads, Sink, Source, Symlinks};
use crate::check::{Check, Fault, ensure};
use crate::job::{Attempt, Seen, content, listing, name, read_to_end, scan};
use crate::stand::{Place, Stocked};
use model::{FailureKind, Generation, Kind, ObjectId};
use std::collections::HashSet;
use std::sync::Arc;
use store::{PublishRule, SourceObject};

pub const CHECKS: &[Check] = &[
    Check {
        name: "scan-parents-first",
        says: "a scan lists a directory before what is in it, and every parent is one that was listed",
        takes: &[Source],
        run: parents_first,
    },
    Check {
        name: "scan-ids-count",
        says: "the objects of a scan are numbered 1, 2, 3 in the order in which they are listed",
        takes: &[Source],
        run: ids_count,
    },
    Check {
        name: "scan-is-complete",
        says: "a scan lists every object once: empty files, empty directories and strange names too, with kinds, sizes and content",
        takes: &[Source, Rereads],
        run: is_complete,
    },
    Check { name: "scan-stops", says: "a scan ends at once when its listener says so", takes: &[Source], run: stops },
    Check {
        name: "scan-repeats",
        says: "a second scan of what did not change lists the same objects under the same numbers",
        takes: &[Source, Rereads],
        run: repeats,
    },
    Check {
        name: "scan-shows-links",
        says: "a symbolic link is listed with its target and never followed",
        takes: &[Source, Sink, Symlinks],
        run: shows_links,
    },
    Check {
        name: "read-at-offsets",
        says: "a read at any offset fills its buffer with the bytes that are there",
        takes: &[Source, Rereads],
        run: at_offsets,
    },
    Check {
        name: "read-at-the-end",
        says: "a read across the end gives what is left, and one at or behind it nothing",
        takes: &[Source, Rereads],
        run: at_the_end,
    },
    Check {
        name: "read-whole",
        says: "a file is read whole in one call, which fills no more than its buffer, with the generation that was listed",
        takes: &[Source, Rereads],
        run: whole,
    },
    Check {
        name: "read-by-several",
        says: "several threads read one open file at once, each its own part",
        takes: &[Source, Rereads],
        run: by_several,
    },
    Check {
        name: "read-once-in-order",
        says: "what can be read once only is read in order, refuses any other offset, and knows its end after the last byte",
        takes: &[Source, ReadsOnce],
        run: once_in_order,
    },
    Check {
        name: "generation-holds",
        says: "while nothing changes, the scan, a second look and an open file agree on the generation",
        takes: &[Source, Rereads],
        run: generation_holds,
    },
    Check {
        name: "generation-changes",
        says: "a change after the scan shows in the generation that a read gives, and in a second look",
        takes: &[Source, Rereads, Changes],
        run: generation_changes,
    },
    Check {
        name: "generation-guards-open-files",
        says: "a file that is open while it changes goes on with its old content, or shows another generation",
        takes: &[Source, Rereads, Changes],
        run: guards_open_files,
    },
    Check {
        name: "gone-is-not-found",
        says: "a file that is gone since the scan cannot be opened, and the error says that it is not there",
        takes: &[Source, Rereads, Changes],
        run: gone,
    },
];

fn stocked(place: &dyn Place) -> Result<(Stocked, Vec<SourceObject>), Fault> {
    let stocked = place.stocked(false)?;
    let objects = scan(&*stocked.source)?;
    ensure!(!objects.is_empty(), "nothing was listed");
    Ok((stocked, objects))
}

/// The largest file, with its content.
fn largest(stocked: &Stocked, objects: &[SourceObject]) -> Result<(SourceObject, Vec<u8>), Fault> {
    let files = objects.iter().filter(|object| object.entry.kind == Kind::File);
    let object =
        files.max_by_key(|object| object.entry.size_bytes()).ok_or_else(|| Fault::new("no file was listed"))?;
    match stocked.objects.get(&stocked.source.path(object)) {
        Some(Seen::File(content)) => Ok((object.clone(), content.clone())),
        _ => Err(Fault::new(format!("{} is no file that was put there", object.entry.name))),
    }
}

fn parents_first(place: &dyn Place) -> Result<(), Fault> {
    let mut directories = HashSet::from([ObjectId::ROOT]);
    for SourceObject { entry, .. } in stocked(place)?.1 {
        ensure!(directories.contains(&entry.parent), "{} came before its directory", entry.name);
        if entry.kind == Kind::Directory {
            directories.insert(entry.id);
        }
    }
    Ok(())
}

fn ids_count(place: &dyn Place) -> Result<(), Fault> {
    for (number, SourceObject { entry, .. }) in (1..).zip(stocked(place)?.1) {
        ensure!(entry.id.0 == number, "object {number} of the listing has the number {}", entry.id.0);
    }
    Ok(())
}

fn is_complete(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, objects) = stocked(place)?;
    for object in objects.iter().filter(|object| object.entry.kind == Kind::File) {
        let path = stocked.source.path(object);
        let size = stocked.objects.get(&path).and_then(|seen| seen.clone().into_content()).map(|c| c.len() as u64);
        ensure!(Some(object.entry.size_bytes()) == size, "{} is listed with a wrong size", object.entry.name);
    }
    let found = listing(&*stocked.source)?;
    for (path, expected) in &stocked.objects {
        let shown = model::name::Escaped(path);
        ensure!(found.contains_key(path), "{shown} was not listed");
        ensure!(found.get(path) == Some(expected), "{shown} is not what was put there");
    }
    let stranger = found.keys().find(|path| !stocked.objects.contains_key(*path));
    ensure!(
        stranger.is_none(),
        "{:?} was listed and never put there",
        stranger.map(|path| model::name::Escaped(path).to_string())
    );
    Ok(())
}

fn stops(place: &dyn Place) -> Result<(), Fault> {
    let stocked = place.stocked(false)?;
    let mut heard = 0;
    stocked.source.scan(&mut |_| {
        heard += 1;
        false
    })?;
    ensure!(heard == 1, "the listener was called {heard} times, and said at the first that it had enough");
    Ok(())
}

fn repeats(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, first) = stocked(place)?;
    let second = scan(&*stocked.source)?;
    ensure!(first.len() == second.len(), "{} objects, and then {}", first.len(), second.len());
    for (one, other) in first.iter().zip(&second) {
        ensure!(one.entry == other.entry, "{} was listed differently the second time", one.entry.name);
    }
    Ok(())
}

fn shows_links(place: &dyn Place) -> Result<(), Fault> {
    let stocked = place.stocked(true)?;
    let found = listing(&*stocked.source)?;
    for (path, expected) in stocked.objects.iter().filter(|(_, seen)| matches!(seen, Seen::Symlink(_))) {
        let shown = model::name::Escaped(path);
        ensure!(found.get(path) == Some(expected), "{shown} is {:?}", found.get(path));
    }
    Ok(())
}

fn at_offsets(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, objects) = stocked(place)?;
    let (object, content) = largest(&stocked, &objects)?;
    let file = stocked.source.lane().open(&object)?;
    for (start, length) in
        [(0, 1), (1, 4096), (4095, 2), (content.len() / 2, 70_000), (content.len() - 1, 1), (0, 1 << 17)]
    {
        let end = content.len().min(start + length);
        let mut buffer = vec![0; end - start];
        let read = file.read_at(start as u64, &mut buffer)?;
        ensure!(read == buffer.len(), "a read of {} bytes at {start} gave {read}", buffer.len());
        ensure!(buffer == content[start..end], "other bytes came from {start} to {end}");
    }
    Ok(())
}

fn at_the_end(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, objects) = stocked(place)?;
    let (object, content) = largest(&stocked, &objects)?;
    let file = stocked.source.lane().open(&object)?;
    let mut buffer = vec![0; 1000];
    for (behind_start, expected) in [(content.len() - 300, 300), (content.len(), 0), (content.len() + 5000, 0)] {
        let read = file.read_at(behind_start as u64, &mut buffer)?;
        ensure!(
            read == expected,
            "a read at {behind_start} of {} bytes gave {read} instead of {expected}",
            content.len()
        );
    }
    Ok(())
}

fn whole(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, objects) = stocked(place)?;
    let mut lane = stocked.source.lane();
    for object in objects.iter().filter(|object| object.entry.kind == Kind::File) {
        let Some(Seen::File(content)) = stocked.objects.get(&stocked.source.path(object)) else { continue };
        for room in [content.len() + 10, content.len(), content.len() / 2] {
            let mut buffer = vec![0; room];
            let (read, generation) = lane.read_whole(object, &mut buffer)?;
            let expected = content.len().min(room);
            ensure!(read == expected, "{}: {read} bytes instead of {expected}", object.entry.name);
            ensure!(buffer[..read] == content[..read], "{}: other bytes came", object.entry.name);
            ensure!(generation == object.entry.generation, "{}: another generation came with it", object.entry.name);
        }
    }
    Ok(())
}

fn by_several(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, objects) = stocked(place)?;
    let (object, content) = largest(&stocked, &objects)?;
    let file = stocked.source.lane().open(&object)?;
    let (part, file) = (content.len().div_ceil(4), &file);
    std::thread::scope(|scope| {
        let read = |number: usize, expected: &[u8]| {
            for _ in 0..20 {
                let mut buffer = vec![0; expected.len()];
                let read = file.read_at((number * part) as u64, &mut buffer)?;
                ensure!(read == buffer.len() && buffer == expected, "thread {number} read bytes that are not there");
            }
            Ok(())
        };
        let parts = content.chunks(part).enumerate();
        let threads: Vec<_> = parts.map(|(number, part)| scope.spawn(move || read(number, part))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a reader returns"))
    })
}

fn once_in_order(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, objects) = stocked(place)?;
    let (object, expected) = largest(&stocked, &objects)?;
    let file = stocked.source.lane().open(&object)?;
    let mut block = vec![0; expected.len() / 3];
    let read = file.read_at(0, &mut block)?;
    ensure!(read == block.len() && block == expected[..read], "its beginning is not what was put there");
    ensure!(!file.is_at_end(), "it says that it is at its end after {read} of {} bytes", expected.len());
    ensure!(file.read_at(0, &mut block).is_err(), "it was read from its start a second time");
    let mut rest = vec![0; expected.len() - read];
    let more = file.read_at(read as u64, &mut rest)?;
    ensure!(more == rest.len() && rest == expected[read..], "its rest is not what was put there");
    ensure!(file.is_at_end(), "it does not know that it is at its end");
    ensure!(stocked.source.look_again(&object).is_err(), "it says that it can be read again");
    Ok(())
}

fn generation_holds(place: &dyn Place) -> Result<(), Fault> {
    let (stocked, objects) = stocked(place)?;
    let mut lane = stocked.source.lane();
    for object in objects.iter().filter(|object| object.entry.kind == Kind::File) {
        let again = stocked.source.look_again(object)?;
        ensure!(again.entry == object.entry, "{} looks different the second time", object.entry.name);
        let opened = lane.open(object)?.generation()?;
        ensure!(opened == object.entry.generation, "{} has another generation when it is open", object.entry.name);
    }
    Ok(())
}

/// A source, an object of it that another program is about to change, and its content.
type Changing = (Arc<dyn store::Source>, SourceObject, Vec<u8>);

fn changing(place: &dyn Place) -> Result<Changing, Fault> {
    let before = content(1, 5000);
    match place.sink() {
        Some(_) => {
            let job = Attempt::at(place)?;
            job.put(&job.file(ObjectId::ROOT, name("file"), before.len()), &before, PublishRule::NoReplace)?;
            job.close(place)?;
        }
        None => place.put(&name("file"), &before),
    }
    let source = place.source().ok_or_else(|| Fault::new("there is no source"))?;
    let object = scan(&*source)?.into_iter().find(|object| object.entry.name == name("file"));
    let object = object.ok_or_else(|| Fault::new("the file was not listed"))?;
    Ok((source, object, before))
}

fn generation_changes(place: &dyn Place) -> Result<(), Fault> {
    let (source, object, _) = changing(place)?;
    let differs = |what: &str, generation: Generation| {
        ensure!(generation != object.entry.generation, "{what} has the generation from before the change");
        Ok(())
    };
    let after = content(2, 6000);
    place.put(&name("file"), &after);
    let mut lane = source.lane();
    let (_, generation) = lane.read_whole(&object, &mut vec![0; 7000])?;
    differs("what was read whole", generation)?;
    differs("the open file", lane.open(&object)?.generation()?)?;
    let again = source.look_again(&object)?;
    differs("a second look", again.entry.generation)?;
    let mut buffer = vec![0; 7000];
    let (read, generation) = lane.read_whole(&again, &mut buffer)?;
    ensure!(buffer[..read] == after && generation == again.entry.generation, "the new content does not come");
    Ok(())
}

fn guards_open_files(place: &dyn Place) -> Result<(), Fault> {
    let (source, object, before) = changing(place)?;
    let file = source.lane().open(&object)?;
    place.put(&name("file"), &content(2, 6000));
    let now = read_to_end(&*file)?;
    let is_told = file.generation()? != object.entry.generation;
    ensure!(is_told || now == before, "the content changed under the generation of the scan");
    Ok(())
}

fn gone(place: &dyn Place) -> Result<(), Fault> {
    let (source, object, _) = changing(place)?;
    place.remove(&name("file"));
    let opened = source.lane().open(&object).err().map(|e| e.kind);
    let read = source.lane().read_whole(&object, &mut [0; 10]).err().map(|e| e.kind);
    let looked = source.look_again(&object).err().map(|e| e.kind);
    for (what, kind) in [("opening", opened), ("reading", read), ("looking", looked)] {
        ensure!(kind == Some(FailureKind::NotFound), "{what} came to {kind:?}");
    }
    Ok(())
}
