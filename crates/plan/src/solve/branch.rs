//! Branch and bound over the values of knobs, for models with too many settings to try.
//!
//! Each part of the search keeps a range of values for every knob. Its bound is a linear program in which a knob may mix its
//! values: one share for each value, one share for each pair where an edge depends on two knobs. A part whose mixture is one
//! setting is done; any other is split at the mixture's mean. No piecewise line replaces a law, so the answer is exact when
//! the search ends; when its work is used up, or a program is too large, the best settings found stand, and are said to be
//! unproved.

use super::flow::{self, Limits};
use super::options::{Options, rate_at, weight};
use super::simplex::{Failure, Program};
use crate::graph::{Count, Graph};

/// Steps of arithmetic that a search may take: some twenty parts of sixteen disks and four cards (`large`).
const WORK_MAX: f64 = 8e7;
/// Cells of the table of one program (32 MB), and steps in it (about a second). The first program of a search is the largest.
const CELLS_MAX: f64 = 4e6;
const MIXTURE_WORK_MAX: f64 = 1e9;
/// Steps of arithmetic for the flows by which the knobs of some settings are lowered one after the other; beyond it, one flow is kept to.
const LOWERED_WORK_MAX: f64 = 2e8;
/// Parts that are looked at however large the model is.
const PARTS_MIN: usize = 3;
/// What a bound must promise beyond the best found, relative to it.
const PROMISE: f64 = 1e-6;
/// A share of a mixture that is all of it.
const WHOLE: f64 = 1.0 - 1e-6;
/// What the whole rate is worth, in units of all weights together.
const RATE_WORTH: f64 = 1e3;

/// Settings with the best rate, and whether there is none better.
pub fn fastest(graph: &Graph, options: &Options) -> Result<(Vec<u32>, bool), Failure> {
    let mut best: Option<(f64, Vec<u32>)> = None;
    let mut offer = |settings: Vec<u32>| -> Result<f64, Failure> {
        let rate = rate_at(graph, &settings)?;
        if best.as_ref().is_none_or(|(held, _)| rate > *held) {
            best = Some((rate, settings));
        }
        Ok(best.as_ref().map_or(0.0, |(rate, _)| *rate))
    };
    offer(options.iter().map(|values| values[values.len() - 1]).collect())?;
    offer(own_best(graph, options))?;
    let is_proved = search(graph, options, |part| {
        let mixed = Mixture::solve(graph, part, None)?;
        let held = offer(mixed.likeliest(part))?.max(offer(mixed.rounded_up(part))?);
        Ok((mixed.rate > held * (1.0 + PROMISE)).then_some((-mixed.rate, mixed)))
    })?;
    let (_, settings) = best.expect("one was offered");
    Ok((settings, is_proved))
}

/// For every knob the value at which the least of the edges that depend on it carries most: a start that is often the end.
fn own_best(graph: &Graph, options: &Options) -> Vec<u32> {
    let least = |knob: usize, n: u32| {
        let laws = graph.edges.iter().filter_map(|edge| edge.law.as_ref().map(|law| (edge, law)));
        let carried = laws.filter_map(|(edge, law)| {
            let (counts, shapes) = (edge.count == Count::Knob(knob), edge.law_knob == Some(knob));
            (counts || shapes).then(|| {
                let value = if shapes { law.value(n) } else { 1.0 };
                if counts { f64::from(n) * value } else { value }
            })
        });
        carried.fold(f64::INFINITY, f64::min)
    };
    let best = |(knob, values): (usize, &Vec<u32>)| {
        let order = |a: &&u32, b: &&u32| least(knob, **a).total_cmp(&least(knob, **b)).then(b.cmp(a));
        *values.iter().max_by(order).expect("at least one value")
    };
    options.iter().enumerate().map(best).collect()
}

/// The cheapest settings that reach a rate, starting from some that do; and whether there are none cheaper.
pub fn cheapest(graph: &Graph, options: &Options, start: &[u32], wanted: f64) -> Result<(Vec<u32>, bool), Failure> {
    let mut held = lowered(graph, options, start.to_vec(), wanted)?;
    let grain = grain(graph);
    let is_proved = search(graph, options, |part| {
        if rate_bound(graph, part)? < wanted {
            return Ok(None);
        }
        let mixed = Mixture::solve(graph, part, Some(wanted))?;
        for settings in [mixed.likeliest(part), mixed.rounded_up(part)] {
            if rate_at(graph, &settings)? >= wanted {
                let lower = lowered(graph, options, settings, wanted)?;
                if weight(graph, &lower) < weight(graph, &held) {
                    held = lower;
                }
            }
        }
        // Where the mixture falls short of the rate, its weight is no bound: then the lowest values are one.
        let least = part.iter().map(|values| values[0]).collect::<Vec<_>>();
        let bound = if mixed.rate >= wanted * WHOLE { mixed.weight } else { weight(graph, &least) };
        let bound = if grain > 0.0 { (bound / grain - 1e-4).ceil() * grain } else { bound };
        Ok((bound < weight(graph, &held) - 1e-9).then_some((bound, mixed)))
    })?;
    Ok((held, is_proved))
}

/// The largest step that all weights are whole multiples of, if there is a plain one.
fn grain(graph: &Graph) -> f64 {
    let divides = |grain: &f64| graph.knobs.iter().all(|knob| (knob.weight / grain).fract() == 0.0);
    [1.0, 0.5, 0.25, 0.125].into_iter().find(divides).unwrap_or(0.0)
}

/// Looks at parts, the most promising first, until none promises anything, the work is used up, or a program takes too much of it.
/// `look` returns a part's bound (less is better) and mixture, or nothing when it can be dropped. True when nothing was left.
fn search(
    graph: &Graph,
    options: &Options,
    mut look: impl FnMut(&Options) -> Result<Option<(f64, Mixture)>, Failure>,
) -> Result<bool, Failure> {
    let (rows, columns) = size(graph, options);
    if rows * columns > CELLS_MAX {
        return Ok(false);
    }
    let mut open: Vec<(f64, Options)> = vec![(f64::NEG_INFINITY, options.clone())];
    let (mut work, mut looked) = (0.0, 0);
    while let Some(next) = (0..open.len()).min_by(|a, b| open[*a].0.total_cmp(&open[*b].0)) {
        if work > WORK_MAX && looked >= PARTS_MIN {
            return Ok(false);
        }
        let (_, part) = open.swap_remove(next);
        work += cost(graph, &part);
        looked += 1;
        let found = match look(&part) {
            Err(Failure::NoEnd | Failure::TooMuch) => return Ok(false),
            found => found?,
        };
        let Some((bound, mixed)) = found else { continue };
        if let Some((low, high)) = mixed.split(&part) {
            open.extend([(bound, low), (bound, high)]);
        }
    }
    Ok(true)
}

/// About how many steps of arithmetic the bound of a part takes.
fn cost(graph: &Graph, part: &Options) -> f64 {
    let (rows, columns) = size(graph, part);
    rows * rows * columns
}

/// Rows and columns of the table for a part's program, at the most.
fn size(graph: &Graph, part: &Options) -> (f64, f64) {
    let values = |knob: usize| part[knob].len() as f64;
    let volumes = graph.edges.iter().filter(|edge| edge.volume_bytes.is_some()).count();
    let mut rows = (graph.nodes.len() + volumes + 2 * graph.hosts.len() + part.len()) as f64;
    let mut variables = (graph.edges.len() + 1) as f64 + (0..part.len()).map(values).sum::<f64>();
    for edge in &graph.edges {
        let mixed: Vec<f64> = edge.knobs().map(values).filter(|values| *values > 1.0).collect();
        if let [one, other] = mixed[..] {
            rows += one + other;
            variables += one * other;
        } else if !mixed.is_empty() {
            rows += 1.0;
        }
    }
    // Each row has a slack.
    (rows, variables + rows)
}

/// The rate with every edge at its largest value in the part: a bound that costs one flow.
fn rate_bound(graph: &Graph, part: &Options) -> Result<f64, Failure> {
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let edge = |edge: &crate::graph::Edge| {
        let mut knobs = edge.knobs();
        let mut settings = vec![0; part.len()];
        match (knobs.next(), knobs.next()) {
            (None, _) => edge.capacity(&settings),
            (Some(knob), None) => most(&mut part[knob].iter().map(|n| {
                settings[knob] = *n;
                edge.capacity(&settings)
            })),
            (Some(one), Some(other)) => {
                most(&mut part[one].iter().flat_map(|a| part[other].iter().map(move |b| (*a, *b))).map(|(a, b)| {
                    (settings[one], settings[other]) = (a, b);
                    edge.capacity(&settings)
                }))
            }
        }
    };
    let highest: Vec<u32> = part.iter().map(|values| values[values.len() - 1]).collect();
    let hosts = graph.hosts.iter().map(|host| host.cpu_percent_max(&highest)).collect();
    flow::rate(graph, &Limits { edges: graph.edges.iter().map(edge).collect(), hosts })
}

/// Lowers one knob after the other as far as the rate allows, those that weigh most first.
fn lowered(graph: &Graph, options: &Options, mut settings: Vec<u32>, wanted: f64) -> Result<Vec<u32>, Failure> {
    let mut order: Vec<usize> = (0..settings.len()).filter(|knob| options[*knob].len() > 1).collect();
    order.sort_by(|a, b| graph.knobs[*b].weight.total_cmp(&graph.knobs[*a].weight));
    let is_little_work = order.len() as f64 * flow::work(graph) <= LOWERED_WORK_MAX;
    let mut need = needed(graph, &settings, wanted)?;
    for (nth, knob) in order.into_iter().enumerate() {
        if nth > 0 && is_little_work {
            need = needed(graph, &settings, wanted)?;
        }
        let before = settings[knob];
        for n in options[knob].iter().filter(|n| **n < before) {
            settings[knob] = *n;
            if fits(&need, &Limits::at(graph, &settings)) {
                break;
            }
            settings[knob] = before;
        }
    }
    Ok(settings)
}

/// What a rate takes of every edge and host, as it flows with these settings.
fn needed(graph: &Graph, settings: &[u32], wanted: f64) -> Result<Limits, Failure> {
    let flow = flow::solve(graph, &Limits::at(graph, settings))?;
    let share = if flow.rate > 0.0 { (wanted / flow.rate).min(1.0) } else { 1.0 };
    let edges: Vec<f64> = flow.rates.iter().map(|rate| rate * share).collect();
    let of_host = |host| flow::costs(graph, host, 1.0).iter().map(|(edge, cost)| cost * edges[*edge]).sum::<f64>();
    let hosts = (0..graph.hosts.len()).map(of_host).collect();
    Ok(Limits { edges, hosts })
}

fn fits(need: &Limits, limits: &Limits) -> bool {
    let fits = |(need, limit): (&f64, &f64)| *need <= *limit * (1.0 + 1e-12);
    need.edges.iter().zip(&limits.edges).all(fits) && need.hosts.iter().zip(&limits.hosts).all(fits)
}

/// The solution of a part's linear program.
struct Mixture {
    rate: f64,
    weight: f64,
    /// For every knob the share of each of its values.
    shares: Vec<Vec<f64>>,
}

impl Mixture {
    /// The best mixture: for the rate, or, with a rate wanted, for the weight that reaches it.
    fn solve(graph: &Graph, part: &Options, wanted: Option<f64>) -> Result<Mixture, Failure> {
        let lowest: Vec<u32> = part.iter().map(|values| values[0]).collect();
        let highest: Vec<u32> = part.iter().map(|values| values[values.len() - 1]).collect();
        let scale = wanted.unwrap_or_else(|| flow::scale(&Limits::at(graph, &highest)));
        let is_mixed = |edge: &crate::graph::Edge| edge.knobs().any(|knob| part[knob].len() > 1);
        let upper = |edge: &crate::graph::Edge| {
            if is_mixed(edge) { f64::INFINITY } else { edge.capacity(&lowest) / scale }
        };
        let (mut program, rate) = flow::program(graph, graph.edges.iter().map(upper), 1.0);
        let all_weights = weight(graph, &highest) - weight(graph, &lowest);
        let gain = |knob: usize, n: u32| match wanted {
            None => 0.0,
            Some(_) if all_weights <= 0.0 => 0.0,
            Some(_) => -graph.knobs[knob].weight * f64::from(n - lowest[knob]) / all_weights / RATE_WORTH,
        };
        if wanted.is_some() {
            program.uppers[rate] = 1.0;
        }
        let shares = Shares::new(&mut program, part, gain);
        for (place, edge) in graph.edges.iter().enumerate().filter(|(_, edge)| is_mixed(edge)) {
            shares.limit_edge(&mut program, part, edge, place, scale);
        }
        for (host, _) in graph.hosts.iter().enumerate() {
            shares.limit_host(&mut program, graph, part, host, scale);
        }
        let (most, rows) = (size(graph, part), program.rows.len());
        debug_assert!(rows as f64 <= most.0 && (rows + program.gains.len()) as f64 <= most.1);
        let optimum = program.solve_within(MIXTURE_WORK_MAX)?;
        let shares = shares.read(part, &optimum.values);
        let mean =
            |knob: usize| shares[knob].iter().zip(&part[knob]).map(|(share, n)| share * f64::from(*n)).sum::<f64>();
        Ok(Mixture {
            rate: optimum.values[rate] * scale,
            weight: graph.knobs.iter().enumerate().map(|(knob, of)| of.weight * mean(knob)).sum(),
            shares,
        })
    }

    /// For every knob the value with the largest share.
    fn likeliest(&self, part: &Options) -> Vec<u32> {
        let largest = |(shares, values): (&Vec<f64>, &Vec<u32>)| {
            let place = (0..shares.len()).max_by(|a, b| shares[*a].total_cmp(&shares[*b]));
            values[place.unwrap_or_default()]
        };
        self.shares.iter().zip(part).map(largest).collect()
    }

    /// For every knob the largest value with a share.
    fn rounded_up(&self, part: &Options) -> Vec<u32> {
        let last = |(shares, values): (&Vec<f64>, &Vec<u32>)| {
            values[shares.iter().rposition(|share| *share > 1.0 - WHOLE).unwrap_or_default()]
        };
        self.shares.iter().zip(part).map(last).collect()
    }

    /// The part in two, at the mean of the knob that is mixed most. Nothing where the mixture is one setting.
    fn split(&self, part: &Options) -> Option<(Options, Options)> {
        let largest = |knob: usize| self.shares[knob].iter().copied().fold(0.0, f64::max);
        let knob =
            (0..part.len()).filter(|knob| largest(*knob) < WHOLE).min_by(|a, b| largest(*a).total_cmp(&largest(*b)))?;
        let mean: f64 = self.shares[knob].iter().zip(&part[knob]).map(|(share, n)| share * f64::from(*n)).sum();
        let at = part[knob].partition_point(|n| f64::from(*n) <= mean).clamp(1, part[knob].len() - 1);
        let (mut low, mut high) = (part.clone(), part.clone());
        high[knob] = low[knob].split_off(at);
        Some((low, high))
    }
}

/// Where the shares of values stand among a program's variables. The lowest value of a knob has none: it is the rest.
struct Shares {
    first: Vec<usize>,
}

impl Shares {
    fn new(program: &mut Program, part: &Options, gain: impl Fn(usize, u32) -> f64) -> Shares {
        let mut first = Vec::new();
        for (knob, values) in part.iter().enumerate() {
            first.push(program.gains.len());
            let variables: Vec<usize> = values[1..].iter().map(|n| program.variable(gain(knob, *n), 1.0)).collect();
            if variables.len() > 1 {
                program.at_most(variables.into_iter().map(|variable| (variable, 1.0)).collect(), 1.0);
            }
        }
        Shares { first }
    }

    /// The variable of a knob's value, by its place behind the lowest.
    fn variable(&self, knob: usize, place: usize) -> usize {
        self.first[knob] + place - 1
    }

    fn limit_edge(&self, program: &mut Program, part: &Options, edge: &crate::graph::Edge, place: usize, scale: f64) {
        let mixed: Vec<usize> = edge.knobs().filter(|knob| part[*knob].len() > 1).collect();
        let mut settings: Vec<u32> = part.iter().map(|values| values[0]).collect();
        let base = edge.capacity(&settings) / scale;
        let mut terms = vec![(place, 1.0)];
        if let [knob] = mixed[..] {
            for (at, n) in part[knob].iter().enumerate().skip(1) {
                settings[knob] = *n;
                terms.push((self.variable(knob, at), base - edge.capacity(&settings) / scale));
            }
        } else if let [one, other] = mixed[..] {
            let pairs = pairs(program, part[one].len(), part[other].len());
            for (at, row) in pairs.iter().enumerate() {
                for (beside, variable) in row.iter().enumerate() {
                    (settings[one], settings[other]) = (part[one][at], part[other][beside]);
                    terms.extend(variable.map(|variable| (variable, base - edge.capacity(&settings) / scale)));
                }
            }
            for (at, row) in pairs.iter().enumerate().skip(1) {
                let mut sum: Vec<_> = row.iter().flatten().map(|variable| (*variable, 1.0)).collect();
                sum.push((self.variable(one, at), -1.0));
                program.balanced(sum);
            }
            for beside in 1..part[other].len() {
                let mut sum: Vec<_> =
                    pairs.iter().filter_map(|row| row[beside]).map(|variable| (variable, 1.0)).collect();
                sum.push((self.variable(other, beside), -1.0));
                program.balanced(sum);
            }
        }
        program.at_most(terms, base);
    }

    /// A host's processor time: its cores, and the threads that the knobs start.
    fn limit_host(&self, program: &mut Program, graph: &Graph, part: &Options, place: usize, scale: f64) {
        let host = &graph.hosts[place];
        let costs = flow::costs(graph, place, scale);
        if costs.is_empty() {
            return;
        }
        program.at_most(costs.clone(), 100.0 * (host.cores - host.reserve));
        if host.threads.is_empty() {
            return;
        }
        let (mut terms, mut base) = (costs, 0.0);
        for (knob, each) in &host.threads {
            let lowest = f64::from(part[*knob][0]);
            base += 100.0 * each * lowest;
            for (at, n) in part[*knob].iter().enumerate().skip(1) {
                terms.push((self.variable(*knob, at), -100.0 * each * (f64::from(*n) - lowest)));
            }
        }
        program.at_most(terms, base);
    }

    fn read(&self, part: &Options, values: &[f64]) -> Vec<Vec<f64>> {
        let of_knob = |(knob, options): (usize, &Vec<u32>)| {
            let mut shares: Vec<f64> = (1..options.len()).map(|at| values[self.variable(knob, at)]).collect();
            shares.insert(0, (1.0 - shares.iter().sum::<f64>()).max(0.0));
            shares
        };
        part.iter().enumerate().map(of_knob).collect()
    }
}

/// A variable for every pair of values but the lowest two, which are the rest.
fn pairs(program: &mut Program, one: usize, other: usize) -> Vec<Vec<Option<usize>>> {
    let mut pairs = vec![vec![None; other]; one];
    for (at, row) in pairs.iter_mut().enumerate() {
        for variable in row.iter_mut().skip(usize::from(at == 0)) {
            *variable = Some(program.variable(0.0, 1.0));
        }
    }
    let all: Vec<(usize, f64)> = pairs.iter().flatten().flatten().map(|variable| (*variable, 1.0)).collect();
    program.at_most(all, 1.0);
    pairs
}
