//! `thalweg plan --graph`: solves a model, and shows the answer as text, JSON or a picture.

use super::picture;
use super::prediction::{Ends, Planned};
use super::values::{rate, rate_above_zero, read_text, shown_rate};
use crate::exit::{self, Result, error, usage};
use crate::output::{line, note, shown};
use model::Exit;
use plan::calibration::Part;
use plan::graph::{Change, Graph, Problem};
use plan::solve::{self, Solution, Unsolved};
use serde::Serialize;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::PathBuf;

/// What is printed of the resources that limit.
const PRICES_SHOWN: usize = 3;

#[derive(clap::Args, Debug)]
pub struct ModelArgs {
    /// A model of hosts, settings and edges, as JSON
    #[arg(
        long,
        value_name = "MODEL",
        conflicts_with = "locations",
        required_unless_present = "locations",
        env = "THALWEG_GRAPH"
    )]
    graph: Option<PathBuf>,
    /// A source on this host and a destination that was calibrated
    #[arg(value_names = ["SRC", "DST"], num_args = 2)]
    locations: Vec<OsString>,
    /// Leave a knob at this value; may be given several times
    #[arg(long, value_name = "KNOB=N", value_parser = fixed, value_delimiter = ',', env = "THALWEG_FIX")]
    fix: Vec<(String, u32)>,
    /// Find the cheapest settings that reach this rate, instead of the best rate
    #[arg(long, value_name = "RATE", value_parser = rate_above_zero, env = "THALWEG_GOAL")]
    goal: Option<f64>,
    /// Also say what the best rate would be with another capacity of an edge: a rate, or a factor such as x2; may be given
    /// several times
    #[arg(long, value_name = "EDGE=RATE|EDGE=xFACTOR", value_parser = what_if, value_delimiter = ',', env = "THALWEG_WHAT_IF")]
    what_if: Vec<WhatIf>,
    /// Write the graph as a picture, with what limits it marked
    #[arg(long, value_name = "FILE", env = "THALWEG_SVG")]
    svg: Option<PathBuf>,
    /// Print the answer as one JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

#[derive(Clone, Debug)]
struct WhatIf {
    text: String,
    edge: String,
    change: Change,
}

fn fixed(text: &str) -> Result<(String, u32), String> {
    let wrong = || format!("{text:?} is not KNOB=N, such as n=8");
    let (knob, n) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok((knob.to_owned(), n.parse().map_err(|_| wrong())?))
}

fn what_if(text: &str) -> Result<WhatIf, String> {
    let wrong = || format!("{text:?} is not EDGE=RATE or EDGE=xFACTOR, such as network=25Gbit or disks=x2");
    let (edge, value) = text.rsplit_once('=').ok_or_else(wrong)?;
    let change = match value.strip_prefix('x') {
        Some(factor) => Change::Times(factor.parse().map_err(|_| wrong())?),
        None => Change::To(rate(value).map_err(|_| wrong())?),
    };
    if matches!(change, Change::Times(factor) if !(0.0..=1e6).contains(&factor)) {
        return Err(wrong());
    }
    Ok(WhatIf { text: text.to_owned(), edge: edge.to_owned(), change })
}

pub fn run(args: &ModelArgs) -> Result<Exit> {
    let (mut graph, ends) = match (&args.graph, &args.locations[..]) {
        (Some(path), _) => (Graph::parse(&read_text(path)?).map_err(of_problem)?, None),
        (None, [source, destination]) => {
            let ends = Ends::find(source, destination)?;
            (ends.graph()?, Some(ends))
        }
        _ => return Err(usage("no model is named", "`--graph MODEL` names one")),
    };
    for (nth, (knob, n)) in args.fix.iter().enumerate() {
        if args.fix[..nth].iter().any(|(other, _)| other == knob) {
            return Err(usage(format!("--fix names {} twice", shown(knob)), "give each knob one value"));
        }
        graph.fix(knob, *n).map_err(of_problem)?;
    }
    let mut solution = solve::solve(&graph, args.goal).map_err(of_unsolved)?;
    let fixed = args.fix.last().map(|(_, n)| *n);
    let planned = match (&ends, args.goal) {
        (Some(ends), Some(goal)) => Some(ends.reach(goal, fixed)?),
        (Some(ends), None) => Some(ends.predict(fixed)?),
        (None, _) => None,
    };
    if let (Some(ends), Some(planned)) = (&ends, &planned) {
        // The model knows neither starts nor files that overlap: what is predicted counts.
        solution.bytes_per_second = planned.interval.p50;
        solution.best_bytes_per_second = ends.reach(f64::INFINITY, fixed)?.interval.p50.max(planned.interval.p50);
        solution.settings = vec![planned.streams];
    }
    let what_ifs = args
        .what_if
        .iter()
        .map(|what_if| {
            let changed = graph.with_capacity(&what_if.edge, what_if.change).map_err(of_problem)?;
            let best_bytes_per_second = match ends.as_ref().zip(Part::of_word(&what_if.edge)) {
                Some((ends, part)) => ends.with(part, what_if.change).reach(f64::INFINITY, fixed)?.interval.p50,
                None => solve::best(&changed).map_err(of_unsolved)?,
            };
            Ok(Changed { change: &what_if.text, best_bytes_per_second })
        })
        .collect::<Result<Vec<_>>>()?;
    if let Some(svg) = &args.svg {
        let picture = picture::svg(&graph, &solution);
        std::fs::write(svg, picture).map_err(|e| exit::of_written("write picture", svg, &e))?;
    }
    if args.json {
        let answer = Answer::of(&graph, &solution, &what_ifs, planned.as_ref());
        line(&serde_json::to_string(&answer).expect("plain values have a JSON form"));
    } else {
        let ahead = planned.as_ref().map(Planned::text).unwrap_or_default();
        ahead.into_iter().chain(text(&graph, &solution, &what_ifs, planned.is_none())).all(|text| line(&text));
    }
    if !solution.is_proved {
        note("the model has too many settings to try: these are the best that were found");
    }
    let is_of_network = args.what_if.iter().any(|what_if| Part::of_word(&what_if.edge) == Some(Part::Network));
    if let Some(doubt) = ends.as_ref().filter(|_| is_of_network).and_then(Ends::doubt_of_network) {
        note(&doubt);
    }
    match args.goal {
        Some(goal) if !solution.reaches(args.goal) => Err(out_of_reach(goal, &solution)),
        _ => Ok(Exit::Done),
    }
}

fn of_problem(problem: Problem) -> exit::Error {
    usage(problem.to_string(), problem.cure)
}

fn of_unsolved(unsolved: Unsolved) -> exit::Error {
    usage(unsolved.to_string(), unsolved.cure())
}

/// The goal, and what has to grow for it.
fn out_of_reach(goal: f64, solution: &Solution) -> exit::Error {
    let names: Vec<_> = solution.prices.iter().take(PRICES_SHOWN).map(|price| shown(&price.resource)).collect();
    let (goal, best) = (shown_rate(goal), shown_rate(solution.best_bytes_per_second));
    let limit = if names.is_empty() { "nothing can flow".into() } else { format!("limited by {}", names.join(", ")) };
    let first = names.first().map_or("EDGE", String::as_str);
    error(
        Exit::OutOfReach,
        format!("the goal of {goal} cannot be reached: the best is {best}, {limit}"),
        format!("`--what-if {first}=x2` says what more of it would bring"),
    )
}

#[derive(Serialize)]
struct Answer<'a> {
    v: u32,
    rate_bytes_per_second: f64,
    best_bytes_per_second: f64,
    knobs: Map<String, Value>,
    is_proved: bool,
    bottleneck: Option<&'a str>,
    hosts: Vec<HostShare<'a>>,
    prices: Vec<Price<'a>>,
    what_if: &'a [Changed<'a>],
    #[serde(flatten)]
    planned: Option<&'a Planned>,
}

#[derive(Serialize)]
struct HostShare<'a> {
    name: &'a str,
    cpu_percent: f64,
}

#[derive(Serialize)]
struct Price<'a> {
    resource: &'a str,
    bytes_per_second_per_unit: f64,
}

#[derive(Serialize)]
struct Changed<'a> {
    change: &'a str,
    best_bytes_per_second: f64,
}

impl<'a> Answer<'a> {
    fn of(
        graph: &'a Graph,
        solution: &'a Solution,
        what_if: &'a [Changed<'a>],
        planned: Option<&'a Planned>,
    ) -> Answer<'a> {
        let hosts = graph.hosts.iter().zip(&solution.host_percent);
        let price = |price: &'a solve::Price| Price {
            resource: &price.resource,
            bytes_per_second_per_unit: price.bytes_per_second_per_unit,
        };
        let knobs = graph.knobs.iter().zip(solution.settings.clone());
        Answer {
            v: 1,
            rate_bytes_per_second: solution.bytes_per_second,
            best_bytes_per_second: solution.best_bytes_per_second,
            knobs: knobs.map(|(knob, n)| (knob.name.clone(), n.into())).collect(),
            is_proved: solution.is_proved,
            bottleneck: solution.bottleneck.as_deref(),
            hosts: hosts.map(|(host, percent)| HostShare { name: &host.name, cpu_percent: *percent }).collect(),
            prices: solution.prices.iter().map(price).collect(),
            what_if,
            planned,
        }
    }
}

/// What a person reads.
fn text(graph: &Graph, solution: &Solution, what_ifs: &[Changed], has_settings: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let best = solution.best_bytes_per_second;
    if has_settings {
        lines.push(format!("rate    {}", shown_rate(solution.bytes_per_second)));
    }
    if solution.bytes_per_second < best * 0.999 {
        lines.push(format!("best    {} with any settings", shown_rate(best)));
    }
    if has_settings && !graph.knobs.is_empty() {
        let knobs = graph.knobs.iter().zip(&solution.settings).map(|(knob, n)| format!("{} = {n}", shown(&knob.name)));
        lines.push(format!("with    {}", knobs.collect::<Vec<_>>().join(", ")));
    }
    for (host, percent) in graph.hosts.iter().zip(&solution.host_percent) {
        lines.push(format!("host    {}: {:.1} of {} cores busy", shown(&host.name), percent / 100.0, host.cores));
    }
    for price in solution.prices.iter().take(PRICES_SHOWN) {
        let more = match price.is_host {
            true => format!("one more core adds up to {}", shown_rate(100.0 * price.bytes_per_second_per_unit)),
            false => format!("1 Gbit/s more adds {:.2} Gbit/s", price.bytes_per_second_per_unit),
        };
        lines.push(format!("limit   {}: {more}", shown(&price.resource)));
    }
    for what_if in what_ifs {
        let rate = shown_rate(what_if.best_bytes_per_second);
        let gain = if best > 0.0 { 100.0 * (what_if.best_bytes_per_second / best - 1.0) } else { 0.0 };
        lines.push(format!("if      {}: {rate} at best, {gain:+.0} %", what_if.change));
    }
    lines
}
