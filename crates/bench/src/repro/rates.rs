//! The rates of copies beside those of an rsync daemon and of globus-url-copy, and what they cost: large, small and
//! tiny files without delay; mixed, small and tiny ones over a long path. An earlier build may race too.
//!
//! Invariants: all tools take turns in every round; a ratio is the median of those of single rounds; a claim beside a
//! tool that did not run is void.
//!
//! Not here: tools behind ssh and stores (`bench compare`), other paths (`bench sweep`).

use std::time::Duration;

use super::context::Context;
use super::judge::{Check, shown};
use super::paths::OURS;
use crate::dataset::{PER_DIR_DEFAULT, Plan};
use crate::diff::EARLIER;
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::sample::Sample;
use crate::statistics::{Ratio, ratios};
use crate::sweep::{Axes, Figures, Row, series};
use crate::tool::Variant;
use crate::workspace::Pauses;

const GLOBUS: &str = "globus-url-copy";
const RSYNC: &str = "rsync";
const TINY: &str = "tiny";
const FAR_BITS_PER_SECOND: u64 = 2_000_000_000;
const FAR_ROUND_TRIP: Duration = Duration::from_millis(74);
/// Counted ones.
const ROUNDS: u32 = 10;
/// Of a race without a budget: several times what ten rounds take.
const RACE_TIME: Duration = Duration::from_secs(3 * 3600);
/// So much of the start of a run and of its end is drawn.
const DRAWN_SECONDS: f64 = 3.0;

/// A data set, and how many times the rate of which rival ours has to reach with it.
struct Set {
    name: &'static str,
    beside: Option<(&'static str, f64)>,
}

struct Place {
    /// Of its folder.
    name: &'static str,
    shown: &'static str,
    sets: [Set; 3],
    /// Of the item's time.
    share: f64,
    series_interval: Option<Duration>,
}

static NEAR: Place = Place {
    name: "near",
    shown: "without delay",
    sets: [set("large", GLOBUS, 1.0), set("small", RSYNC, 1.5), set(TINY, RSYNC, 2.2)],
    share: 0.4,
    series_interval: None,
};

static FAR: Place = Place {
    name: "far",
    shown: "far",
    sets: [set("lognormal", RSYNC, 1.08), Set { name: "small", beside: None }, Set { name: TINY, beside: None }],
    share: 0.6,
    // Shorter than the round trip.
    series_interval: Some(Duration::from_millis(50)),
};

const fn set(name: &'static str, rival: &'static str, times: f64) -> Set {
    Set { name, beside: Some((rival, times)) }
}

pub fn run(context: &mut Context) -> Result<()> {
    let rivals = context.rivals(&[GLOBUS, RSYNC]);
    context.note("near/sweep.md and far/sweep.md have every tool's figures, with spreads, failed and void runs");
    let axes = Axes { rates: vec![None], round_trips: vec![Duration::ZERO], ..Axes::default() };
    let near = race(context, &NEAR, axes, &rivals)?;
    judge(context, &near);
    judge_cost(context, &near);
    let axes = Axes { rates: context.rate(FAR_BITS_PER_SECOND), round_trips: vec![FAR_ROUND_TRIP], ..Axes::default() };
    let far = race(context, &FAR, axes, &rivals)?;
    judge(context, &far);
    draw(context, &far);
    Ok(())
}

/// What came of the race in one place.
struct Raced {
    place: &'static Place,
    /// With what was moved of each.
    sets: Vec<(&'static Set, String)>,
    /// Ours first.
    tools: Vec<String>,
    figures: Figures,
    ratios: Vec<Ratio>,
    /// Deliveries of ours that were not what was sent; none where there were none at all.
    wrong: Option<f64>,
}

impl Raced {
    fn row(&self, spec: &str, tool: &str) -> Option<&Row> {
        self.figures.work().find(|row| row.set == spec && row.tool == tool)
    }

    /// Of ours to another tool.
    fn ratio(&self, spec: &str, tool: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|ratio| ratio.set == spec && ratio.ours == OURS && ratio.rival == tool)
    }

    /// How many times the other tool's rate ours has.
    fn times(&self, spec: &str, tool: &str) -> Option<f64> {
        Some(self.ratio(spec, tool)?.speedup.median)
    }

    /// A figure of every tool that has it.
    fn told(&self, spec: &str, figure: impl Fn(&Row) -> f64) -> String {
        let of_tool = |tool: &String| Some(format!("{tool} {}", shown(figure(self.row(spec, tool)?))));
        self.tools.iter().filter_map(of_tool).collect::<Vec<_>>().join(", ")
    }
}

fn race(context: &mut Context, place: &'static Place, axes: Axes, rivals: &[String]) -> Result<Raced> {
    let options = context.options;
    let moved = |set: &'static Set| part_of(set.name, options.bytes, options.seed).map(|spec| (set, spec));
    let sets = place.sets.iter().map(moved).collect::<Result<Vec<_>>>()?;
    let earlier = options.earlier.as_ref().map(|file| Variant { label: EARLIER.into(), ..Variant::new(file) });
    let ours = std::iter::once(OURS.to_owned()).chain(earlier.iter().map(|build| build.label.clone()));
    let tools: Vec<String> = ours.chain(rivals.iter().cloned()).collect();
    let axes = Axes { sets: sets.iter().map(|(_, spec)| spec.clone()).collect(), ..axes };
    let figures = context.sweep(Some(place.name), place.share, axes, |sweep| {
        sweep.variants.extend(earlier);
        sweep.rivals = rivals.to_vec();
        sweep.rounds = options.rounds.unwrap_or(ROUNDS);
        sweep.budget = if options.budget.is_some() { sweep.budget } else { Some(RACE_TIME) };
        // Rates of gigabits, at which touching memory anew would be part of the cost.
        sweep.pauses = Pauses { quiet_max: Duration::from_secs(3), ..Pauses::default() };
        sweep.series_interval = place.series_interval;
    })?;
    let (ratios, wrong) = (ratios(&context.samples), wrong(&context.samples));
    Ok(Raced { place, sets, tools, figures, ratios, wrong })
}

/// The set, or as much of it as has so many bytes.
fn part_of(set: &str, bytes_max: Option<u64>, seed: u64) -> Result<String> {
    let whole = Plan::parse(set, PER_DIR_DEFAULT, seed)?.totals().bytes;
    let part = bytes_max.filter(|bytes| *bytes < whole);
    Ok(part.map_or(set.to_owned(), |bytes| format!("{set}@{bytes}/{whole}")))
}

fn wrong(samples: &[Sample]) -> Option<f64> {
    let ours: Vec<&Sample> = samples.iter().filter(|sample| sample.tool == OURS).collect();
    (!ours.is_empty()).then(|| ours.iter().filter(|sample| sample.is_wrong()).count() as f64)
}

fn judge(context: &mut Context, raced: &Raced) {
    for (set, spec) in &raced.sets {
        let about = format!("{}, {}", raced.place.shown, set.name);
        if let Some((rival, times)) = set.beside {
            let claim = format!("{about}: rate beside {rival}");
            context.check(Check::at_least(claim, times, raced.times(spec, rival)));
        }
        let of_both: Option<Vec<f64>> = [GLOBUS, RSYNC].into_iter().map(|rival| raced.times(spec, rival)).collect();
        let of_better = of_both.map(|times| times.into_iter().fold(f64::INFINITY, f64::min));
        context.check(Check::at_least(format!("{about}: rate beside the better of both rivals"), 1.0, of_better));
        if let Some(Ratio { speedup, interval, .. }) = raced.ratio(spec, EARLIER) {
            let [median, low, high] = [speedup.median, interval.low, interval.high].map(shown);
            let claim = format!("{about}: rate beside the earlier build");
            context.check(Check::told(claim, "", format!("{median} ({low} to {high})")));
        }
        let is_tiny = set.name == TINY;
        let rate = |row: &Row| if is_tiny { row.files_per_second_median } else { row.gbit_per_second.median };
        let unit = if is_tiny { "files/s" } else { "Gbit/s" };
        context.check(Check::told(format!("{about}: {unit}"), "", raced.told(spec, rate)));
        let claim = format!("{about}: processor seconds per GB of both ends");
        context.check(Check::told(claim, "", raced.told(spec, |row| row.cpu_seconds_per_gb_median)));
    }
    let claim = format!("{}: deliveries of ours that are not what was sent", raced.place.shown);
    context.check(Check::at_most(claim, 0.0, raced.wrong).of_any_machine());
}

/// Ours beside clear text without digests, to which encryption alone may add.
fn judge_cost(context: &mut Context, near: &Raced) {
    let cipher = net::cipher::chosen();
    // One end seals each byte, the other one opens it.
    let aead = 2.0 / cipher.gb_per_second();
    for (set, spec) in &near.sets {
        let cost = |tool: &str| Some(near.row(spec, tool)?.cpu_seconds_per_gb_median);
        let share = cost(OURS).zip(cost(GLOBUS)).map(|(own, other)| own / (other + aead));
        let about = format!("{}, {}", near.place.shown, set.name);
        let claim = format!("{about}: processor time / that of {GLOBUS} in clear text and of the AEAD");
        context.check(Check::at_most(claim, 1.0, share));
    }
    context.note(format!("the AEAD takes {} processor s/GB at both ends together: {cipher}", shown(aead)));
}

/// How the first counted run of each tool with the first set begins and ends.
fn draw(context: &mut Context, far: &Raced) {
    let condition = far.figures.conditions().first().map(|condition| (*condition).to_owned()).unwrap_or_default();
    let (dir, (set, spec)) = (context.dir.join(far.place.name), &far.sets[0]);
    let kept = |tool: &String| series::read(&series::path(&dir, &condition, spec, tool, 1));
    let curves: Vec<(&String, series::Series)> = far.tools.iter().map(|tool| (tool, kept(tool))).collect();
    let link = context.rate(FAR_BITS_PER_SECOND)[0].unwrap_or(FAR_BITS_PER_SECOND) as f64 / 1e9;
    for (name, title, label) in
        [("start", "begin", "seconds from the first content"), ("end", "end", "seconds to the last content")]
    {
        let of_tool = |(tool, kept): &(&String, series::Series)| Series {
            name: (*tool).clone(),
            kind: if *tool == OURS { Kind::Measured } else { Kind::Rival },
            points: drawn(kept, name == "end"),
        };
        let mut curves: Vec<Series> = curves.iter().map(of_tool).collect();
        curves.push(Series { name: "link".into(), kind: Kind::Bound, points: vec![Point::at(0.0, link)] });
        context.plot(Plot {
            name: name.into(),
            title: format!("How copies of {} {title}", set.name),
            note: "Bytes that left the sending host's interface, every 50 ms, with headers and retransmissions.".into(),
            x: Axis::new(label, Scale::Linear, Unit::Number),
            y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
            series: curves,
        });
    }
}

/// The first seconds of a run, or the last ones, counted back from its end.
fn drawn(kept: &series::Series, is_end: bool) -> Vec<Point> {
    let zero = if is_end { kept.last().map_or(0.0, |point| point.0) } else { 0.0 };
    let points = kept.iter().map(|(at, rate)| Point::at(at - zero, *rate));
    points.filter(|point| point.x.abs() <= DRAWN_SECONDS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict, catalog};
    use super::*;
    use crate::sample::State;
    use crate::statistics::tests::sample;
    use std::sync::atomic::AtomicBool;

    /// The checks of a race near, of whose sets only the tiny one was moved.
    fn checks(samples: &[Sample]) -> Vec<Check> {
        let raced = Raced {
            place: &NEAR,
            sets: NEAR.sets.iter().map(|set| (set, set.name.to_owned())).collect(),
            tools: [OURS, EARLIER, GLOBUS, RSYNC].map(str::to_owned).to_vec(),
            figures: Figures::of(samples),
            ratios: ratios(samples),
            wrong: wrong(samples),
        };
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path(), "thalweg");
        let cancel = AtomicBool::new(false);
        let mut progress = |_: &str| ();
        let item = catalog::find("rates").unwrap();
        let mut context = Context::new(item, &options, Duration::ZERO, &cancel, &mut progress, Vec::new());
        judge(&mut context, &raced);
        judge_cost(&mut context, &raced);
        context.finish(None).unwrap().checks
    }

    fn found<'a>(checks: &'a [Check], claim: &str) -> &'a Check {
        checks.iter().find(|check| check.claim == format!("without delay{claim}")).unwrap_or_else(|| panic!("{claim}"))
    }

    #[test]
    fn ours_is_held_against_one_rival_the_better_of_both_and_its_own_past() {
        let times = [(OURS, 1.0), (EARLIER, 1.5), (GLOBUS, 0.9), (RSYNC, 2.3)];
        let mut samples = Vec::new();
        for round in 1..=3 {
            samples.extend(times.map(|(tool, seconds)| sample(tool, round, seconds)));
        }
        let judged = checks(&samples);
        let of = |claim: &str| found(&judged, claim);
        assert_eq!(of(", tiny: rate beside rsync").verdict, Verdict::Pass);
        assert_eq!(of(", tiny: rate beside the better of both rivals").verdict, Verdict::Fail);
        assert_eq!(of(", tiny: rate beside the earlier build").measured, "1.50 (1.50 to 1.50)");
        assert_eq!(of(", tiny: files/s").measured, "thalweg 10.0, earlier 6.67, globus-url-copy 11.1, rsync 4.35");
        // 3 s/GB are those of the rival: the AEAD's are left.
        let cost = ": processor time / that of globus-url-copy in clear text and of the AEAD";
        assert_eq!(of(&format!(", tiny{cost}")).verdict, Verdict::Pass);
        // What was not moved has no verdict, nor has what one of both rivals did not move.
        assert_eq!(of(", large: rate beside globus-url-copy").verdict, Verdict::Void);
        assert_eq!(of(&format!(", large{cost}")).verdict, Verdict::Void);
        samples.retain(|sample| sample.tool != GLOBUS);
        let without = checks(&samples);
        assert_eq!(found(&without, ", tiny: rate beside the better of both rivals").verdict, Verdict::Void);
    }

    #[test]
    fn a_wrong_delivery_of_ours_fails_and_one_of_a_rival_does_not() {
        let wrong = |tool: &str| {
            let note = "delivery differs: missing: f7".to_owned();
            [sample(OURS, 1, 1.0), Sample { state: State::Failed, note, ..sample(tool, 2, 1.0) }]
        };
        let claim = ": deliveries of ours that are not what was sent";
        let verdict = |samples: &[Sample]| found(&checks(samples), claim).verdict;
        assert_eq!([&wrong(OURS)[..], &wrong(RSYNC), &[]].map(verdict), [Verdict::Fail, Verdict::Pass, Verdict::Void]);
    }

    #[test]
    fn a_size_makes_a_set_smaller_and_never_larger() {
        let part = part_of(TINY, Some(1 << 20), 1).unwrap();
        assert_eq!(part, "tiny@1048576/51200000");
        assert_eq!(Plan::parse(&part, PER_DIR_DEFAULT, 1).unwrap().totals().files, 1024);
        assert_eq!([None, Some(1 << 40)].map(|bytes| part_of(TINY, bytes, 1).unwrap()), [TINY, TINY]);
    }

    #[test]
    fn the_end_of_a_run_is_counted_back_from_its_last_content() {
        let kept: series::Series = (1..=10).map(|second| (f64::from(second), 1.0)).collect();
        let at = |is_end: bool| drawn(&kept, is_end).iter().map(|point| point.x).collect::<Vec<_>>();
        assert_eq!((at(false), at(true)), (vec![1.0, 2.0, 3.0], vec![-3.0, -2.0, -1.0, 0.0]));
        assert!(drawn(&Vec::new(), true).is_empty());
    }
}
