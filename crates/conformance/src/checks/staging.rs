//! What is staged stays out of sight, apart from other attempts, and goes when it is given up.

use crate::Ability::{AnyOrder, Journals, Keeps, ReadsStaged, Sink, Skip, Stages};
use crate::check::{Check, Fault, ensure};
use crate::job::{Attempt, content, name, stage};
use crate::stand::Place;
use model::ObjectId;
use store::{Decision, PublishRule};

pub const CHECKS: &[Check] = &[
    Check {
        name: "small-is-invisible",
        says: "a small object cannot be seen at its name before it is published, and is there as soon as it is",
        takes: &[Sink, Keeps, Stages],
        run: small_is_invisible,
    },
    Check {
        name: "large-is-invisible",
        says: "a large object cannot be seen at its name before it is published, and is there as soon as it is",
        takes: &[Sink, Keeps, Stages],
        run: large_is_invisible,
    },
    Check {
        name: "abandoned-leaves-nothing",
        says: "an object that its lane abandons, by word, for the next one or by its own end, leaves nothing",
        takes: &[Sink, Keeps, Stages],
        run: abandoned,
    },
    Check {
        name: "discarded-leaves-nothing",
        says: "a sealed object that is discarded leaves nothing, and its neighbour is published all the same",
        takes: &[Sink, Keeps, Stages],
        run: discarded,
    },
    Check {
        name: "large-discarded-leaves-nothing",
        says: "a large object that is discarded leaves neither data nor journal",
        takes: &[Sink, Keeps, Stages],
        run: large_discarded,
    },
    Check {
        name: "close-leaves-no-staging",
        says: "after the end of a job that published small and large objects nothing but these is there",
        takes: &[Sink, Keeps, Stages],
        run: closes,
    },
    Check {
        name: "failed-publish-leaves-nothing",
        says: "an object whose publishing was refused leaves nothing behind after the end of the job",
        takes: &[Sink, Keeps, Stages],
        run: failed_publish,
    },
    Check {
        name: "attempts-stay-apart",
        says: "two attempts at one large object at once never share staging: the second gets its own, and an empty journal",
        takes: &[Sink, Keeps, Stages, Journals, ReadsStaged],
        run: attempts_apart,
    },
    Check {
        name: "jobs-stay-apart",
        says: "two jobs that stage small objects of one name at once do not mix their bytes",
        takes: &[Sink, Keeps, Stages],
        run: jobs_apart,
    },
    Check {
        name: "small-rereads",
        says: "reading back a small staged object gives every byte that was written, in order",
        takes: &[Sink, ReadsStaged],
        run: small_rereads,
    },
    Check {
        name: "large-rereads",
        says: "reading back a large staged object gives every byte that was written, in order",
        takes: &[Sink, ReadsStaged],
        run: large_rereads,
    },
    Check {
        name: "skipped-reads-as-zeros",
        says: "bytes of a small object that are passed over read as zeros, at its end too",
        takes: &[Sink, Keeps, Skip],
        run: skips,
    },
    Check {
        name: "unwritten-reads-as-zeros",
        says: "parts of a large object that are never written read as zeros",
        takes: &[Sink, Keeps, Skip, AnyOrder],
        run: unwritten,
    },
];

const FILE: &[u8] = b"file";

fn small_is_invisible(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 3000);
    let entry = job.file(ObjectId::ROOT, name("file"), bytes.len());
    let mut lane = job.lane()?;
    lane.create(&entry, PublishRule::NoReplace)?;
    lane.write(&bytes)?;
    ensure!(place.content(FILE)?.is_none(), "it can be seen while it is written");
    let staged = lane.seal(&entry, false)?;
    ensure!(place.content(FILE)?.is_none(), "it can be seen before it is published");
    ensure!(matches!(job.sink.decide(&entry)?, Decision::Absent), "its name is taken before it is published");
    lane.publish(&entry, staged)?;
    ensure!(place.content(FILE)?.as_deref() == Some(&bytes[..]), "it is not there after it was published");
    drop(lane);
    job.close(place)
}

fn large_is_invisible(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 300_000);
    let entry = job.file(ObjectId::ROOT, name("file"), bytes.len());
    let file = job.begin(&entry)?;
    ensure!(place.content(FILE)?.is_none(), "it can be seen before anything is written");
    file.write_at(0, &bytes)?;
    file.checkpoint()?;
    ensure!(place.content(FILE)?.is_none(), "it can be seen before it is published");
    file.settle(bytes.len() as u64)?;
    file.make_durable(&entry)?;
    ensure!(place.content(FILE)?.is_none(), "it can be seen when it is durable, before it is published");
    ensure!(matches!(job.sink.decide(&entry)?, Decision::Absent), "its name is taken before it is published");
    file.publish(&entry, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_deref() == Some(&bytes[..]), "it is not there after it was published");
    drop(file);
    job.close(place)
}

fn abandoned(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let [first, second, third] = ["a", "b", "c"].map(|text| job.file(ObjectId::ROOT, name(text), 4));
    let mut lane = job.lane()?;
    lane.create(&first, PublishRule::NoReplace)?;
    lane.write(b"half")?;
    lane.abandon();
    lane.create(&second, PublishRule::NoReplace)?;
    lane.write(b"also")?;
    let staged = stage(&mut *lane, &third, b"kept", PublishRule::NoReplace)?;
    job.sink.publish(&third, staged)?;
    lane.create(&first, PublishRule::NoReplace)?;
    lane.write(b"lost")?;
    drop(lane);
    ensure!(place.content(b"a")?.is_none() && place.content(b"b")?.is_none(), "an abandoned object can be seen");
    ensure!(place.content(b"c")?.as_deref() == Some(b"kept"), "the object after an abandoned one is not whole");
    job.close(place)
}

fn discarded(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let [first, second] = ["a", "b"].map(|text| job.file(ObjectId::ROOT, name(text), 4));
    let mut lane = job.lane()?;
    let lost = stage(&mut *lane, &first, b"lost", PublishRule::NoReplace)?;
    let kept = stage(&mut *lane, &second, b"kept", PublishRule::NoReplace)?;
    job.sink.discard(lost);
    job.sink.publish(&second, kept)?;
    drop(lane);
    ensure!(place.content(b"a")?.is_none(), "a discarded object can be seen");
    ensure!(place.content(b"b")?.as_deref() == Some(b"kept"), "its neighbour is not whole");
    job.close(place)
}

fn large_discarded(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let entry = job.file(ObjectId::ROOT, name("file"), 5000);
    let file = job.begin(&entry)?;
    file.write_at(0, &content(1, 5000))?;
    file.append_journal(b"something of it is here")?;
    file.discard();
    drop(file);
    ensure!(place.content(FILE)?.is_none(), "a discarded object can be seen");
    job.close(place)
}

fn closes(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let (small, large) = (content(1, 3000), content(2, 300_000));
    job.put(&job.file(ObjectId::ROOT, name("small"), small.len()), &small, PublishRule::NoReplace)?;
    let entry = job.file(ObjectId::ROOT, name("large"), large.len());
    let file = job.begin(&entry)?;
    file.write_at(0, &large)?;
    file.append_journal(b"all of it is here")?;
    file.publish(&entry, PublishRule::NoReplace)?;
    drop(file);
    job.close(place)
}

fn failed_publish(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let entry = job.file(ObjectId::ROOT, name("file"), 6);
    job.put(&entry, b"theirs", PublishRule::NoReplace)?;
    let refused = job.try_put(&entry, b"ours!!", PublishRule::NoReplace);
    ensure!(refused.is_err(), "it was published over what stood there");
    let mut lane = job.lane()?;
    let staged = stage(&mut *lane, &entry, b"ours!!", PublishRule::NoReplace)?;
    ensure!(job.sink.publish(&entry, staged).is_err(), "it was published over what stood there");
    drop(lane);
    job.close(place)
}

fn attempts_apart(place: &dyn Place) -> Result<(), Fault> {
    let (one, other) = (Attempt::at(place)?, Attempt::at(place)?);
    let (ours, theirs) = (content(1, 200_000), content(2, 200_000));
    let entry = one.file(ObjectId::ROOT, name("file"), ours.len());
    let first = one.begin(&entry)?;
    first.write_at(0, &ours[..100_000])?;
    first.append_journal(b"the first attempt's")?;
    for job in [&one, &other] {
        let second = job.begin(&entry)?;
        second.write_at(0, &theirs)?;
        second.append_journal(b"the second attempt's")?;
        let mut seen = vec![0; 100_000];
        let read = first.read_at(0, &mut seen)?;
        ensure!(read == seen.len() && seen == ours[..100_000], "the second attempt wrote into the first one's staging");
        second.discard();
    }
    first.write_at(100_000, &ours[100_000..])?;
    first.publish(&entry, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_deref() == Some(&ours[..]), "what was published is not the first attempt's");
    drop(first);
    other.end();
    one.close(place)
}

fn jobs_apart(place: &dyn Place) -> Result<(), Fault> {
    let jobs = [Attempt::at(place)?, Attempt::at(place)?];
    let contents = [content(1, 9000), content(2, 9000)];
    let entry = jobs[0].file(ObjectId::ROOT, name("file"), 9000);
    let mut lanes = [jobs[0].lane()?, jobs[1].lane()?];
    for lane in &mut lanes {
        lane.create(&entry, PublishRule::Replace)?;
    }
    for part in [0..4000, 4000..9000] {
        for (lane, bytes) in lanes.iter_mut().zip(&contents) {
            lane.write(&bytes[part.clone()])?;
        }
    }
    for (lane, expected) in lanes.iter_mut().zip(&contents) {
        let staged = lane.seal(&entry, false)?;
        lane.publish(&entry, staged)?;
        ensure!(place.content(FILE)?.as_ref() == Some(expected), "one job's object is not what that job wrote");
    }
    drop(lanes);
    let [one, other] = jobs;
    other.end();
    one.close(place)
}

fn small_rereads(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 70_001);
    let entry = job.file(ObjectId::ROOT, name("file"), bytes.len());
    let mut lane = job.lane()?;
    let staged = stage(&mut *lane, &entry, &bytes, PublishRule::NoReplace)?;
    let mut read = Vec::new();
    job.sink.reread(&entry, staged, &mut |block| read.extend_from_slice(block))?;
    ensure!(read == bytes, "{} bytes were written, and {} others read back", bytes.len(), read.len());
    job.sink.discard(staged);
    drop(lane);
    job.close(place)
}

fn large_rereads(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 700_001);
    let file = job.begin(&job.file(ObjectId::ROOT, name("file"), bytes.len()))?;
    file.write_at(0, &bytes)?;
    let mut read = Vec::new();
    file.reread(&mut |block| read.extend_from_slice(block))?;
    ensure!(read == bytes, "{} bytes were written, and {} others read back", bytes.len(), read.len());
    file.discard();
    drop(file);
    job.close(place)
}

fn skips(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let mut bytes = content(1, 90_000);
    bytes[10_000..60_000].fill(0);
    bytes[80_000..].fill(0);
    let entry = job.file(ObjectId::ROOT, name("file"), bytes.len());
    let mut lane = job.lane()?;
    lane.create(&entry, PublishRule::NoReplace)?;
    lane.write(&bytes[..10_000])?;
    lane.skip(50_000)?;
    lane.write(&bytes[60_000..80_000])?;
    lane.skip(10_000)?;
    let staged = lane.seal(&entry, false)?;
    lane.publish(&entry, staged)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "it does not read as what was written, with zeros between");
    drop(lane);
    job.close(place)
}

fn unwritten(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let mut bytes = content(1, 500_000);
    bytes[100_000..400_000].fill(0);
    bytes[450_000..].fill(0);
    let entry = job.file(ObjectId::ROOT, name("file"), bytes.len());
    let (file, journal) = job.sink.begin_sparse(&entry, crate::job::STEM)?;
    ensure!(journal.is_empty(), "new staging came with a journal");
    file.write_at(0, &bytes[..100_000])?;
    file.write_at(400_000, &bytes[400_000..450_000])?;
    file.publish(&entry, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "it does not read as what was written, with zeros between");
    drop(file);
    job.close(place)
}
