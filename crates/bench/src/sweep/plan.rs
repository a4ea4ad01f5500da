//! What a sweep will do, decided before it starts: conditions, cells, runs, and what a time budget leaves of them.
//!
//! Invariants:
//! - The same options give the same plan, and its hash; nothing that was measured enters it.
//! - Within a condition, work goes from the smallest to the largest files.
//! - What a budget takes away is listed in `cut`. Less is moved first, then there are fewer rounds, then fewer sizes, then
//!   fewer conditions.

use std::path::Path;
use std::time::Duration;

use model::DigestAlgorithm;
use serde::{Deserialize, Serialize};

use super::{Axes, Condition, Options};
use crate::compare::shown_file_system;
use crate::dataset;
use crate::error::{Error, Kind, Result};
use crate::tool::{self, SYNTHETIC_SOURCE};
use crate::workspace::MEMORY_DIR;

/// Small files move at about this rate at most on the machines this is meant for; it only sizes the work.
const FILES_PER_SECOND_ASSUMED: f64 = 20_000.0;
/// Of a link without a limit.
const BITS_PER_SECOND_ASSUMED: f64 = 10e9;
/// Of the link, what the work is sized for.
const SHARE_ASSUMED: f64 = 0.9;
/// Inodes and directory entries are memory too.
const FILES_MAX: u64 = 200_000;
/// What is made and discarded in memory needs neither, and moves faster.
const SYNTHETIC_FILES_PER_SECOND_ASSUMED: f64 = 60_000.0;
/// A transfer over distance loses about 14 round trips to its start and end: with so many that is a tenth.
const STEADY_ROUND_TRIPS: f64 = 140.0;
const STEADY_SECONDS_MAX: f64 = 30.0;
/// Shorter runs measure the start of a connection.
const RUN_SECONDS_MIN: f64 = 1.0;
/// Making a folder warm, starting and verifying, per run.
const RUN_OVERHEAD_SECONDS: f64 = 1.5;
const CONDITION_OVERHEAD_SECONDS: f64 = 3.0;
/// Writing and digesting a tree.
const TREE_BYTES_PER_SECOND: f64 = 700e6;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub v: u32,
    pub conditions: Vec<Condition>,
    /// In the order in which they run.
    pub cells: Vec<Cell>,
    /// Ours first, its defaults before its other settings.
    pub tools: Vec<String>,
    /// Counted ones; with more than one, a round 0 comes before them and is discarded.
    pub rounds: u32,
    /// Rounds in which the defaults and the best of a grid race again.
    pub pairs: u32,
    pub ceiling_streams: Vec<usize>,
    pub ceiling_seconds: f64,
    /// What the work is sized for, by condition.
    pub run_seconds: Vec<f64>,
    /// Ceilings are also counted from their first byte on, for as long as the work is sized for.
    pub with_starts: bool,
    pub with_iperf: bool,
    pub seed: u64,
    /// Digests of our programs: figures of different builds are not continued.
    pub programs: Vec<String>,
    /// Of each of our programs, for `serve` and `cp`, beside what a condition adds.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Of the rivals, as `Options::rivals` has them; empty for one that is not installed.
    #[serde(default)]
    pub rival_versions: Vec<String>,
    #[serde(default)]
    pub limit_ms: u64,
    /// Of the working directory.
    #[serde(default)]
    pub file_system: String,
    pub seconds_estimated: f64,
    pub cut: Vec<String>,
}

/// One amount of work in one condition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Index into `Plan::conditions`.
    pub condition: usize,
    /// As for `dataset`, or with `gen:` before it where nothing is read or stored.
    pub set: String,
    pub files: u64,
    pub bytes: u64,
    /// Of one run.
    pub seconds_estimated: f64,
}

impl Cell {
    pub fn is_synthetic(&self) -> bool {
        self.set.starts_with(SYNTHETIC_SOURCE)
    }
}

impl Plan {
    pub fn of(options: &Options) -> Result<Plan> {
        check(options)?;
        let mut shape = Shape {
            axes: options.axes.clone(),
            run_seconds: options.run_seconds,
            rounds: options.rounds,
            rival_versions: options.rivals.iter().map(|name| rival_version(name)).collect(),
            cut: Vec::new(),
        };
        let mut plan = shape.plan(options)?;
        let Some(budget) = options.budget.map(|budget| budget.as_secs_f64()) else { return Ok(plan) };
        while plan.seconds_estimated > budget && shape.reduce(plan.seconds_estimated / budget) {
            plan = shape.plan(options)?;
        }
        if plan.seconds_estimated > budget {
            let (needed, budget) = (plan.seconds_estimated, budget);
            plan.cut.push(format!(
                "even then it will take about {needed:.0} s of {budget:.0} s: the last cells may not run"
            ));
        }
        Ok(plan)
    }

    /// Names the plan; another plan has another.
    pub fn hash(&self) -> String {
        let text = serde_json::to_vec(self).expect("plain values serialise");
        DigestAlgorithm::Blake3.of_object(&text).to_string()
    }

    /// Numbers of the rounds, the discarded one included.
    pub fn round_numbers(&self) -> std::ops::RangeInclusive<u32> {
        if self.rounds > 1 { 0..=self.rounds } else { 1..=self.rounds }
    }

    /// Whether rivals take part: they move real files only, and choose their own number of streams.
    pub fn has_rivals(&self, cell: &Cell) -> bool {
        !cell.is_synthetic() && self.conditions[cell.condition].streams.is_none()
    }

    /// What a reader has to know where rivals take no part.
    pub fn note_on_rivals(&self) -> Option<&'static str> {
        let is_set = self.conditions.iter().any(|condition| condition.streams.is_some());
        (self.tools.len() > self.programs.len() && is_set)
            .then_some("rivals choose their own number of streams: they race only where streams=auto")
    }

    pub fn run_count(&self, cell: &Cell) -> usize {
        let tools = if self.has_rivals(cell) { self.tools.len() } else { self.programs.len() };
        tools * self.round_numbers().count()
    }

    /// Lines for people: what would run, in which order.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, condition) in self.conditions.iter().enumerate() {
            let cells: Vec<_> = self.cells.iter().filter(|cell| cell.condition == index).collect();
            let sets: Vec<_> = cells.iter().map(|cell| cell.set.as_str()).collect();
            let runs: usize = cells.iter().map(|cell| self.run_count(cell)).sum();
            lines.push(format!("{condition}: {runs} runs of {}", sets.join(", ")));
        }
        lines.push(format!("tools: {}", self.tools.join(", ")));
        lines.extend(self.note_on_rivals().map(str::to_owned));
        lines.push(format!("about {:.0} s", self.seconds_estimated));
        lines.extend(self.cut.iter().map(|cut| format!("cut: {cut}")));
        lines
    }

    fn condition_seconds(&self, index: usize) -> f64 {
        const IPERF_SECONDS: f64 = 6.0;
        let start = if self.with_starts { self.run_seconds[index] } else { 0.0 };
        let ceiling = self.ceiling_seconds + omitted(&self.conditions[index]).as_secs_f64() + start;
        let iperf = if self.with_iperf { IPERF_SECONDS } else { 0.0 };
        CONDITION_OVERHEAD_SECONDS + self.ceiling_streams.len() as f64 * ceiling + iperf
    }

    pub fn cell_seconds(&self, cell: &Cell, pause: Duration) -> f64 {
        let run = cell.seconds_estimated + RUN_OVERHEAD_SECONDS + pause.as_secs_f64();
        let tree = if cell.is_synthetic() { 0.0 } else { 2.0 * cell.bytes as f64 / TREE_BYTES_PER_SECOND };
        let pairs = if self.pairs > 0 && self.programs.len() > 1 { 2.0 * f64::from(self.pairs) * run } else { 0.0 };
        tree + run * self.run_count(cell) as f64 + pairs
    }
}

/// Sent by a ceiling before it counts: until one stream is steady.
pub fn omitted(condition: &Condition) -> Duration {
    Duration::from_secs(1).max(condition.round_trip() * 20)
}

/// What a budget may change.
struct Shape {
    axes: Axes,
    run_seconds: f64,
    rounds: u32,
    rival_versions: Vec<String>,
    cut: Vec<String>,
}

impl Shape {
    fn plan(&self, options: &Options) -> Result<Plan> {
        let conditions = self.axes.conditions();
        let run_seconds = conditions.iter().map(|condition| self.seconds_of_run(condition, options)).collect();
        let mut cells = Vec::new();
        for (index, condition) in conditions.iter().enumerate() {
            cells.extend(self.cells(index, condition, options)?);
        }
        let ours = options.variants.iter().map(|variant| variant.label.clone());
        let arguments = options.variants.iter().map(|of| format!("{:?} {:?}", of.serve_args, of.cp_args)).collect();
        let working = options.work_dir.as_deref().unwrap_or(Path::new(MEMORY_DIR));
        let mut plan = Plan {
            v: 1,
            conditions,
            cells,
            tools: ours.chain(options.rivals.iter().cloned()).collect(),
            rounds: self.rounds,
            pairs: options.pairs,
            ceiling_streams: options.ceiling_streams.clone(),
            ceiling_seconds: self.run_seconds.clamp(1.0, 4.0),
            run_seconds,
            with_starts: options.with_starts,
            with_iperf: options.with_iperf,
            seed: options.seed,
            programs: options.variants.iter().map(|variant| digest_of(&variant.program)).collect::<Result<_>>()?,
            arguments,
            rival_versions: self.rival_versions.clone(),
            limit_ms: options.limit.as_millis() as u64,
            file_system: shown_file_system(working),
            seconds_estimated: 0.0,
            cut: self.cut.clone(),
        };
        let of_conditions: f64 = (0..plan.conditions.len()).map(|index| plan.condition_seconds(index)).sum();
        let of_cells: f64 = plan.cells.iter().map(|cell| plan.cell_seconds(cell, options.pauses.memory)).sum();
        plan.seconds_estimated = (of_conditions + of_cells).ceil();
        Ok(plan)
    }

    fn cells(&self, index: usize, condition: &Condition, options: &Options) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for &size in &self.axes.sizes {
            let seconds_of_run = self.seconds_of_run(condition, options);
            let sized = |bits: f64| {
                let share = bits / 8.0 * seconds_of_run / f64::from(condition.clients);
                ((share / size.max(1) as f64).round() as u64).max(1)
            };
            let mut bits = bits_per_second(condition, size, FILES_PER_SECOND_ASSUMED);
            let is_too_large = sized(bits) * size > options.volume_bytes_max;
            let is_too_many = options.with_steady_runs && sized(bits) > FILES_MAX;
            // Several clients with the same synthetic ends would be one job, of which the last run takes over.
            let is_synthetic = (is_too_large || is_too_many) && condition.clients == 1;
            if is_synthetic {
                bits = bits_per_second(condition, size, SYNTHETIC_FILES_PER_SECOND_ASSUMED);
            }
            let files = if is_synthetic { sized(bits) } else { sized(bits).min(FILES_MAX) };
            let bytes = files * size;
            let prefix = if is_synthetic { SYNTHETIC_SOURCE } else { "" };
            let set = format!("{prefix}{files}x{}", shown_size(size));
            cells.push(Cell {
                condition: index,
                set,
                files,
                bytes,
                seconds_estimated: seconds(condition, bytes, bits),
            });
        }
        for set in &self.axes.sets {
            let spec = set.strip_prefix(SYNTHETIC_SOURCE).unwrap_or(set);
            let totals = dataset::Plan::parse(spec, dataset::PER_DIR_DEFAULT, options.seed)?.totals();
            let (files, bytes) = (totals.files, totals.bytes);
            let bits = bits_per_second(condition, bytes / files.max(1), FILES_PER_SECOND_ASSUMED);
            let seconds_estimated = seconds(condition, bytes * u64::from(condition.clients), bits);
            cells.push(Cell { condition: index, set: set.clone(), files, bytes, seconds_estimated });
        }
        cells.sort_by_key(|cell| cell.bytes / cell.files.max(1));
        Ok(cells)
    }

    fn seconds_of_run(&self, condition: &Condition, options: &Options) -> f64 {
        let steady = (STEADY_ROUND_TRIPS * condition.round_trip().as_secs_f64()).min(STEADY_SECONDS_MAX);
        if options.with_steady_runs { self.run_seconds.max(steady) } else { self.run_seconds }
    }

    /// Takes something away, by at least `factor` where that is possible; false when nothing is left to take.
    fn reduce(&mut self, factor: f64) -> bool {
        if self.run_seconds > RUN_SECONDS_MIN && !self.axes.sizes.is_empty() {
            let before = self.run_seconds;
            self.run_seconds = (before / factor.max(1.25)).max(RUN_SECONDS_MIN);
            self.cut.retain(|cut| !cut.starts_with("runs are sized"));
            self.cut.push(format!("runs are sized for {:.1} s", self.run_seconds));
            return true;
        }
        if self.rounds > 1 {
            self.rounds -= 1;
            self.cut.retain(|cut| !cut.starts_with("counted rounds"));
            self.cut.push(format!("counted rounds: {}", self.rounds));
            return true;
        }
        if self.axes.sizes.len() > 3 {
            let dropped = thinned(&mut self.axes.sizes);
            let dropped: Vec<_> = dropped.into_iter().map(shown_size).collect();
            self.cut.push(format!("sizes left out: {}", dropped.join(", ")));
            return true;
        }
        let Some((name, dropped)) = self.axes.thin() else { return false };
        self.cut.push(format!("{name} left out: {}", dropped.join(", ")));
        true
    }
}

/// Takes out every second value between the first and the last, which stay.
pub fn thinned<T: Clone>(values: &mut Vec<T>) -> Vec<T> {
    let last = values.len().saturating_sub(1);
    let is_kept = |index: &usize| *index == last || index.is_multiple_of(2);
    let dropped = (0..values.len()).filter(|index| !is_kept(index)).map(|index| values[index].clone()).collect();
    *values = (0..values.len()).filter(is_kept).map(|index| values[index].clone()).collect();
    dropped
}

/// In the largest unit that leaves a whole number, as data sets are named.
pub fn shown_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, power)| bytes > 0 && bytes.is_multiple_of(1 << power));
    unit.map_or(bytes.to_string(), |(name, power)| format!("{}{name}", bytes >> power))
}

fn bits_per_second(condition: &Condition, file_bytes: u64, files_per_second: f64) -> f64 {
    let link = condition.bits_per_second.map_or(BITS_PER_SECOND_ASSUMED, |bits| bits as f64);
    (SHARE_ASSUMED * link).min(files_per_second * 8.0 * file_bytes.max(1) as f64)
}

/// Of one run: the work, and round trips until the first and after the last byte.
fn seconds(condition: &Condition, bytes: u64, bits_per_second: f64) -> f64 {
    const ROUND_TRIPS: f64 = 15.0;
    bytes as f64 * 8.0 / bits_per_second + ROUND_TRIPS * condition.round_trip().as_secs_f64()
}

/// An unknown rival is refused when it is looked for.
fn rival_version(name: &str) -> String {
    tool::rival(name).and_then(|rival| rival.version()).unwrap_or_default()
}

fn digest_of(program: &Path) -> Result<String> {
    let bytes = std::fs::read(program).map_err(|source| {
        let kind = if source.kind() == std::io::ErrorKind::NotFound { Kind::Missing } else { Kind::Failed };
        Error { kind, ..Error::io("read", program)(source) }
    })?;
    Ok(DigestAlgorithm::Blake3.of_object(&bytes).to_string())
}

fn check(options: &Options) -> Result<()> {
    let axes = &options.axes;
    let refuse = |what: &str, cause: &str| Err(Error::usage(what, cause));
    if axes.conditions().is_empty() {
        return refuse("the conditions", "rate, rtt, loss, cc and streams each need at least one value");
    }
    if options.rounds == 0 {
        return refuse("the number of rounds", "must be at least 1");
    }
    if !(options.run_seconds > 0.0 && options.run_seconds.is_finite()) {
        return refuse("the seconds of a run", "must be more than 0");
    }
    if axes.sizes.contains(&0) {
        return refuse("a file size of 0", "a sweep needs files with content");
    }
    let has_clients = axes.clients.iter().any(|clients| *clients > 1);
    if has_clients && axes.sets.iter().any(|set| set.starts_with(SYNTHETIC_SOURCE)) {
        return refuse("a synthetic set with several clients", "their runs would be one job; name a real set");
    }
    let has_work = !axes.sizes.is_empty() || !axes.sets.is_empty();
    if !has_work && options.ceiling_streams.is_empty() {
        return refuse("a sweep without sizes, sets and ceilings", "it would measure nothing");
    }
    if has_work && options.variants.is_empty() && options.rivals.is_empty() {
        return refuse("a sweep without tools", "name a program or a rival");
    }
    if !options.rivals.is_empty() && axes.streams.iter().all(Option::is_some) {
        return refuse("rivals without streams=auto", "they choose their own number: add auto to the stream counts");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Variant;

    fn options(budget: Option<u64>) -> Options {
        let program = std::env::current_exe().unwrap();
        Options {
            axes: Axes {
                sizes: (0..11).map(|step| 1024 << (2 * step)).collect(),
                round_trips: [20, 100, 200].map(Duration::from_millis).to_vec(),
                ..Axes::default()
            },
            variants: vec![Variant::new(program)],
            budget: budget.map(Duration::from_secs),
            ..Options::default()
        }
    }

    #[test]
    fn work_goes_from_small_to_large_and_what_is_too_large_for_the_disk_is_synthetic() {
        let plan = Plan::of(&Options { volume_bytes_max: 100 << 20, ..options(None) }).unwrap();
        assert_eq!((plan.conditions.len(), plan.cells.len()), (3, 33));
        let sets: Vec<_> = plan.cells.iter().take(11).map(|cell| cell.set.as_str()).collect();
        assert_eq!((sets[0], sets[10]), ("100000x1KiB", "gen:1x1GiB"));
        assert!(plan.cells.windows(2).all(|pair| pair[0].condition <= pair[1].condition));
        assert!(plan.cells.iter().all(|cell| cell.is_synthetic() == (cell.bytes > 100 << 20)));
    }

    #[test]
    fn a_budget_takes_away_until_the_plan_fits_and_says_what() {
        let whole = Plan::of(&options(None)).unwrap();
        assert!(whole.cut.is_empty());
        for seconds in [1200, 300, 100] {
            let plan = Plan::of(&options(Some(seconds))).unwrap();
            assert!(plan.seconds_estimated <= seconds as f64, "{seconds}: {}", plan.seconds_estimated);
            assert!(!plan.cut.is_empty() && plan.hash() != whole.hash());
            assert_eq!(plan.hash(), Plan::of(&options(Some(seconds))).unwrap().hash());
            let round_trips: Vec<_> = plan.conditions.iter().map(|condition| condition.rtt_us).collect();
            assert!(round_trips.contains(&20_000) && round_trips.contains(&200_000), "{round_trips:?}");
        }
        let hopeless = Plan::of(&options(Some(1))).unwrap();
        assert!(hopeless.cut.last().unwrap().contains("even then"), "{:?}", hopeless.cut);
    }

    #[test]
    fn steady_runs_last_many_round_trips_whatever_the_budget_and_far_ones_are_synthetic() {
        let plan = Plan::of(&Options { with_steady_runs: true, ..options(Some(700)) }).unwrap();
        for (index, condition) in plan.conditions.iter().enumerate() {
            let round_trips = plan.run_seconds[index] / condition.round_trip().as_secs_f64();
            assert!((round_trips - 140.0).abs() < 1.0 || plan.run_seconds[index] == 30.0, "{round_trips}");
        }
        let far = plan.cells.iter().filter(|cell| plan.conditions[cell.condition].rtt_us == 200_000);
        assert!(far.clone().all(Cell::is_synthetic) && far.count() >= 3);
        assert!(plan.cells.iter().any(|cell| !cell.is_synthetic()));
    }

    #[test]
    fn other_arguments_limits_storages_and_versions_make_another_plan() {
        let plain = Plan::of(&options(None)).unwrap();
        let variant = Variant::new(std::env::current_exe().unwrap());
        let cp = Variant { cp_args: vec!["--streams=2".into()], ..variant.clone() };
        let serve = Variant { serve_args: vec!["--fsync=never".into()], ..variant };
        for other in [
            Options { variants: vec![cp], ..options(None) },
            Options { variants: vec![serve], ..options(None) },
            Options { limit: Duration::from_secs(1), ..options(None) },
            Options { work_dir: Some("/proc".into()), ..options(None) },
        ] {
            assert_ne!(Plan::of(&other).unwrap().hash(), plain.hash(), "{other:?}");
        }
        let raced = Plan::of(&Options { rivals: vec!["cp".into()], ..options(None) }).unwrap();
        assert!(raced.rival_versions.len() == 1 && !raced.rival_versions[0].is_empty(), "{:?}", raced.rival_versions);
        let later = Plan { rival_versions: vec!["cp of tomorrow".into()], ..raced.clone() };
        assert_ne!(later.hash(), raced.hash());
    }

    #[test]
    fn rivals_race_only_where_they_may_have_their_own_number_of_streams() {
        let axes = Axes { sets: vec!["2x1KiB".into()], streams: vec![Some(1), None], ..Axes::default() };
        let raced = Options { axes, rivals: vec!["cp".into()], rounds: 1, ..options(None) };
        let plan = Plan::of(&raced).unwrap();
        let counts: Vec<_> = plan.cells.iter().map(|cell| plan.run_count(cell)).collect();
        assert_eq!(counts, [1, 2]);
        assert!(plan.note_on_rivals().is_some_and(|note| plan.lines().iter().any(|line| line == note)));
        let alone = Plan::of(&Options { rivals: Vec::new(), ..raced }).unwrap();
        assert_eq!(alone.note_on_rivals(), None);
    }

    #[test]
    fn sizes_are_shown_as_data_sets_are_named() {
        assert_eq!([1, 1024, 3 << 20, 1 << 40, 1500].map(shown_size), ["1", "1KiB", "3MiB", "1TiB", "1500"]);
        assert_eq!(thinned(&mut vec![1, 2, 3, 4, 5, 6]), [2, 4]);
    }

    #[test]
    fn a_plan_that_would_measure_nothing_is_refused() {
        let nothing = Options { axes: Axes { losses: Vec::new(), ..Axes::default() }, ..options(None) };
        let no_rounds = Options { rounds: 0, ..options(None) };
        let axes = Axes { streams: vec![Some(1)], ..options(None).axes };
        let no_rival = Options { axes, rivals: vec!["cp".into()], ..options(None) };
        for options in [nothing, no_rounds, no_rival] {
            assert_eq!(Plan::of(&options).unwrap_err().kind, Kind::Usage);
        }
    }
}
