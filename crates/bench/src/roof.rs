//! What a machine allows for work of a given shape: the least of its ceilings, and which one that is.
//!
//! Ceilings measured alone do not add up where all stages share the same cores, so the processors are a ceiling of their
//! own: the cores divided by the sum of what every stage of both ends and the emulator costs. Pure functions; who measures
//! the inputs is `storage` (read, write, publish), a network benchmark (link), and `fit` below (costs).

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was measured alone. What is None was not measured and does not bind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Ceilings {
    /// Goodput of the path with the best stream count.
    pub link_bytes_per_second: Option<f64>,
    /// Shared by all stages. Two hosts of their own have a `Ceilings` each.
    pub cores: f64,
    /// Both ends, and whatever emulates the network.
    pub stages: Vec<Stage>,
    /// Files a second that appear complete at the destination: create, write, rename.
    pub publish_files_per_second: Option<f64>,
    pub read_bytes_per_second: Option<f64>,
    pub write_bytes_per_second: Option<f64>,
}

/// Processor time of one stage.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stage {
    pub name: String,
    pub cpu_seconds_per_byte: f64,
    pub cpu_seconds_per_file: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ceiling {
    Link,
    Processors,
    Publish,
    Read,
    Write,
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ceiling::Link => "the link",
            Ceiling::Processors => "the processors",
            Ceiling::Publish => "create, write and rename",
            Ceiling::Read => "reading",
            Ceiling::Write => "writing",
        })
    }
}

/// The bound for one shape of work.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Roof {
    pub bytes_per_second: f64,
    pub files_per_second: f64,
    pub binds: Ceiling,
    /// Every ceiling that was measured, in bytes per second for this shape, lowest first.
    pub ceilings: Vec<(Ceiling, f64)>,
}

/// The bound for files of one size; None where nothing was measured that could bind.
pub fn roof(size_bytes: u64, ceilings: &Ceilings) -> Option<Roof> {
    roof_of_set(1, size_bytes, ceilings)
}

/// The bound for a set: no stage can be done with all of it sooner.
pub fn roof_of_set(files: u64, bytes: u64, ceilings: &Ceilings) -> Option<Roof> {
    let (files, bytes) = (files as f64, bytes as f64);
    let over = |rate: Option<f64>, amount: f64| rate.filter(|rate| *rate > 0.0).map(|rate| amount / rate);
    let cpu_seconds: f64 =
        ceilings.stages.iter().map(|s| s.cpu_seconds_per_byte * bytes + s.cpu_seconds_per_file * files).sum();
    let seconds = [
        (Ceiling::Link, over(ceilings.link_bytes_per_second, bytes)),
        (Ceiling::Processors, over(Some(ceilings.cores), cpu_seconds)),
        (Ceiling::Publish, over(ceilings.publish_files_per_second, files)),
        (Ceiling::Read, over(ceilings.read_bytes_per_second, bytes)),
        (Ceiling::Write, over(ceilings.write_bytes_per_second, bytes)),
    ];
    // A stage that takes no time for this shape (no bytes, no cost) is no bound.
    let timed = seconds.into_iter().filter_map(|(ceiling, seconds)| Some((ceiling, seconds.filter(|s| *s > 0.0)?)));
    let mut timed: Vec<(Ceiling, f64)> = timed.collect();
    timed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (binds, longest) = *timed.first()?;
    Some(Roof {
        bytes_per_second: bytes / longest,
        files_per_second: files / longest,
        binds,
        ceilings: timed.into_iter().map(|(ceiling, seconds)| (ceiling, bytes / seconds)).collect(),
    })
}

/// One run: what was moved and what it cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostSample {
    pub files: u64,
    pub bytes: u64,
    pub cpu_seconds: f64,
}

/// Costs that explain a few runs of different sizes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Costs {
    pub cpu_seconds_per_byte: f64,
    pub cpu_seconds_per_file: f64,
    /// Process start and handshake; kept apart so that it does not pass for a cost of files.
    pub cpu_seconds_per_run: f64,
    /// Root mean square of the relative errors.
    pub residual: f64,
    /// The largest relative error of one run.
    pub residual_max: f64,
}

impl Costs {
    pub fn stage(&self, name: impl Into<String>) -> Stage {
        Stage {
            name: name.into(),
            cpu_seconds_per_byte: self.cpu_seconds_per_byte,
            cpu_seconds_per_file: self.cpu_seconds_per_file,
        }
    }
}

const UNKNOWNS: usize = 3;

/// Fits non-negative costs by least squares of the relative errors, so that a short run counts as much as a long one.
///
/// None with fewer than two usable runs, or where no combination of costs can be told from another. The cost of a run is
/// fitted only from three runs on.
pub fn fit(samples: &[CostSample]) -> Option<Costs> {
    let usable = samples.iter().filter(|sample| sample.cpu_seconds > 0.0 && (sample.files > 0 || sample.bytes > 0));
    let rows: Vec<[f64; UNKNOWNS]> =
        usable.map(|s| [s.bytes as f64, s.files as f64, 1.0].map(|amount| amount / s.cpu_seconds)).collect();
    if rows.len() < 2 {
        return None;
    }
    let unknowns = if rows.len() < UNKNOWNS { 2 } else { UNKNOWNS };
    // The least-squares solution with non-negative unknowns is the unconstrained one of some subset of them; with three
    // unknowns all subsets can be tried.
    let fits = (1..1_u32 << unknowns).filter_map(|subset| {
        let costs = solve_subset(&rows, subset)?;
        costs.iter().all(|cost| *cost >= 0.0).then(|| (squares(&rows, &costs), costs))
    });
    let (sum, [per_byte, per_file, per_run]) = fits.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let costs = [per_byte, per_file, per_run];
    Some(Costs {
        cpu_seconds_per_byte: per_byte,
        cpu_seconds_per_file: per_file,
        cpu_seconds_per_run: per_run,
        residual: (sum / rows.len() as f64).sqrt(),
        residual_max: rows.iter().map(|row| error(row, &costs).abs()).fold(0.0, f64::max),
    })
}

fn error(row: &[f64; UNKNOWNS], costs: &[f64; UNKNOWNS]) -> f64 {
    row.iter().zip(costs).map(|(amount, cost)| amount * cost).sum::<f64>() - 1.0
}

fn squares(rows: &[[f64; UNKNOWNS]], costs: &[f64; UNKNOWNS]) -> f64 {
    rows.iter().map(|row| error(row, costs).powi(2)).sum()
}

/// Solves the normal equations of the unknowns in `subset`; the others are zero.
fn solve_subset(rows: &[[f64; UNKNOWNS]], subset: u32) -> Option<[f64; UNKNOWNS]> {
    let chosen: Vec<usize> = (0..UNKNOWNS).filter(|unknown| subset & (1 << unknown) != 0).collect();
    let n = chosen.len();
    // Columns differ by many orders of magnitude (bytes beside runs): each is scaled to length one.
    let lengths: Vec<f64> = chosen.iter().map(|&u| rows.iter().map(|row| row[u].powi(2)).sum::<f64>().sqrt()).collect();
    if lengths.contains(&0.0) {
        return None;
    }
    let at = |row: &[f64; UNKNOWNS], i: usize| row[chosen[i]] / lengths[i];
    let mut system = vec![vec![0.0; n + 1]; n];
    for (i, equation) in system.iter_mut().enumerate() {
        for (j, cell) in equation.iter_mut().enumerate() {
            *cell = rows.iter().map(|row| at(row, i) * if j < n { at(row, j) } else { 1.0 }).sum();
        }
    }
    let scaled = eliminate(system)?;
    let mut costs = [0.0; UNKNOWNS];
    for (i, &unknown) in chosen.iter().enumerate() {
        costs[unknown] = scaled[i] / lengths[i];
    }
    Some(costs)
}

/// Gaussian elimination with pivoting; None where the equations do not determine the unknowns.
fn eliminate(mut system: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    /// Of columns of length one: below it, two columns are the same for any measured figures.
    const PIVOT_MIN: f64 = 1e-9;
    let n = system.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| system[a][column].abs().total_cmp(&system[b][column].abs()))?;
        system.swap(column, pivot);
        if system[column][column].abs() < PIVOT_MIN {
            return None;
        }
        let pivot = system[column].clone();
        for (row, equation) in system.iter_mut().enumerate() {
            if row != column {
                let factor = equation[column] / pivot[column];
                equation.iter_mut().zip(&pivot).for_each(|(cell, above)| *cell -= factor * above);
            }
        }
    }
    Some((0..n).map(|i| system[i][n] / system[i][i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: f64 = 1e9 / 8.0;

    fn is_near(value: f64, expected: f64, relative: f64) -> bool {
        (value - expected).abs() <= relative * expected.abs()
    }

    #[test]
    fn the_lowest_ceiling_binds_and_changes_with_the_size() {
        let stages = vec![
            Stage { name: "send".into(), cpu_seconds_per_byte: 0.2e-9, cpu_seconds_per_file: 3e-6 },
            Stage { name: "receive".into(), cpu_seconds_per_byte: 0.3e-9, cpu_seconds_per_file: 7e-6 },
        ];
        let ceilings = Ceilings {
            link_bytes_per_second: Some(2e9),
            cores: 2.0,
            stages,
            publish_files_per_second: Some(100_000.0),
            read_bytes_per_second: Some(5e9),
            write_bytes_per_second: Some(1.5e9),
        };
        // 1,000 bytes: processors 2 / (0.5e-9 * 1000 + 10e-6) = 190,476 files/s; publishing 100,000 binds.
        let small = roof(1_000, &ceilings).unwrap();
        assert_eq!((small.binds, small.files_per_second.round()), (Ceiling::Publish, 100_000.0));
        // 10^9 bytes: processors 2 / (0.5 + 1e-5) = 4e9 B/s, link 2e9, write 1.5e9 binds.
        let large = roof(1_000_000_000, &ceilings).unwrap();
        assert_eq!((large.binds, large.bytes_per_second.round()), (Ceiling::Write, 1.5e9));
        let order: Vec<Ceiling> = large.ceilings.iter().map(|(ceiling, _)| *ceiling).collect();
        assert_eq!(order[..3], [Ceiling::Write, Ceiling::Link, Ceiling::Processors]);
        // With one slow core: 0.5 / (0.5e-9 * 1000 + 10e-6) = 47,619 files/s.
        let slow = roof(1_000, &Ceilings { cores: 0.5, ..ceilings }).unwrap();
        assert_eq!((slow.binds, slow.files_per_second.round()), (Ceiling::Processors, 47_619.0));
    }

    #[test]
    fn what_was_not_measured_does_not_bind() {
        assert_eq!(roof(1_000, &Ceilings::default()), None);
        let only_link = Ceilings { link_bytes_per_second: Some(1e9), ..Ceilings::default() };
        assert_eq!(roof(1_000, &only_link).unwrap().binds, Ceiling::Link);
        assert_eq!(roof(0, &only_link), None);
    }

    #[test]
    fn a_set_of_several_sizes_is_bound_by_the_stage_that_ends_last() {
        let ceilings = Ceilings {
            link_bytes_per_second: Some(1e9),
            publish_files_per_second: Some(10_000.0),
            ..Ceilings::default()
        };
        // 20,000 files take 2 s to publish, their 3e9 bytes 3 s on the link.
        let roof = roof_of_set(20_000, 3_000_000_000, &ceilings).unwrap();
        assert_eq!((roof.binds, roof.bytes_per_second.round()), (Ceiling::Link, 1e9));
        assert!(is_near(roof.files_per_second, 20_000.0 / 3.0, 1e-9));
    }

    /// Bulk sweep of the published appliance at 10 ms: 37.1k files/s, plateau 96.68 Gbit/s, and its published shares of
    /// min(plateau, size x files/s) between 128 KiB and 1 MiB.
    #[test]
    fn the_published_roof_of_the_appliance_is_reproduced() {
        let ceilings = Ceilings {
            link_bytes_per_second: Some(96.68 * GBIT),
            publish_files_per_second: Some(37_100.0),
            ..Ceilings::default()
        };
        for (kib, published_gbit, share, binds) in [
            (128, 27.274, 0.70, Ceiling::Publish),
            (256, 47.405, 0.61, Ceiling::Publish),
            (512, 84.173, 0.87, Ceiling::Link),
            (1024, 91.931, 0.95, Ceiling::Link),
        ] {
            let roof = roof(kib << 10, &ceilings).unwrap();
            assert_eq!(roof.binds, binds, "{kib} KiB");
            assert!((published_gbit * GBIT / roof.bytes_per_second - share).abs() < 0.006, "{kib} KiB: {roof:?}");
        }
    }

    /// Storages A and B of the published sweep: about 35k and 53k files/s, plateaus 457 and 81 Gbit/s.
    #[test]
    fn published_storages_create_alike_and_differ_where_bytes_count() {
        let storage = |files: f64, gbit: f64| Ceilings {
            publish_files_per_second: Some(files),
            write_bytes_per_second: Some(gbit * GBIT),
            ..Ceilings::default()
        };
        let (a, b) = (storage(35_000.0, 457.0), storage(53_000.0, 81.0));
        for (ceilings, kib, published_gbit) in [(&a, 16, 4.4), (&a, 64, 18.3), (&b, 16, 6.9), (&b, 64, 27.8)] {
            let gbit = roof(kib << 10, ceilings).unwrap().bytes_per_second / GBIT;
            assert!(is_near(gbit, published_gbit, 0.05), "{kib} KiB: {gbit} {published_gbit}");
        }
        assert_eq!(roof(1 << 20, &b).unwrap().binds, Ceiling::Write);
        assert_eq!(roof(1 << 20, &a).unwrap().binds, Ceiling::Publish);
    }

    #[test]
    fn costs_are_recovered_from_runs_of_different_sizes() {
        let (per_byte, per_file, per_run) = (0.7e-9, 15e-6, 0.02);
        let runs = [(1, 4_u64 << 30), (50_000, 50_000 << 10), (2_500, 2 << 30), (10_000, 640 << 20)];
        let samples = runs.map(|(files, bytes)| CostSample {
            files,
            bytes,
            cpu_seconds: per_byte * bytes as f64 + per_file * files as f64 + per_run,
        });
        let costs = fit(&samples).unwrap();
        assert!(is_near(costs.cpu_seconds_per_byte, per_byte, 1e-6), "{costs:?}");
        assert!(
            is_near(costs.cpu_seconds_per_file, per_file, 1e-6) && is_near(costs.cpu_seconds_per_run, per_run, 1e-4)
        );
        assert!(costs.residual < 1e-6 && costs.residual_max < 1e-6);
    }

    #[test]
    fn a_cost_that_would_be_negative_is_zero_and_the_residual_says_so() {
        // Fewer seconds for more files of the same total: files cost nothing.
        let samples =
            [(1, 1.00), (1_000, 0.98)].map(|(files, cpu_seconds)| CostSample { files, bytes: 1 << 30, cpu_seconds });
        let costs = fit(&samples).unwrap();
        assert_eq!((costs.cpu_seconds_per_file, costs.cpu_seconds_per_run), (0.0, 0.0));
        // One unknown x against rows b = 1/1.00 and 1/0.98: x = (1 + b) / (1 + b^2), in units of one over 2^30.
        let b: f64 = 1.0 / 0.98;
        assert!(is_near(costs.cpu_seconds_per_byte * (1_u64 << 30) as f64, (1.0 + b) / (1.0 + b * b), 1e-9));
        assert!(costs.residual > 0.009 && costs.residual_max < 0.011, "{costs:?}");
    }

    #[test]
    fn too_few_runs_give_no_costs() {
        let run = CostSample { files: 1, bytes: 1, cpu_seconds: 1.0 };
        assert_eq!((fit(&[]), fit(&[run])), (None, None));
        assert_eq!(fit(&[run, CostSample { cpu_seconds: 0.0, ..run }]), None);
        // Runs of one shape only cannot tell bytes from files; all is charged to one of them.
        assert!(fit(&[run, run]).is_some_and(|costs| costs.residual < 1e-9));
    }
}
