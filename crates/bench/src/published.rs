//! Published figures to lay over measured ones: numbers only, each with the publication and figure it stands in.
//!
//! Sources, cited by number in the tables:
//! - "Reexamining Paradigms" (Fang and others), on the mover zx, with the raw data its authors published. Two
//!   appliances, 100 Gbit/s, TLS, means of three runs; latency is one way. Averages
//!   and deviations stand here, not its raw runs.
//! - The Fermilab evaluation of transfer tools on the ANI 100 Gbit/s testbed, page cache to a sink that discards.
//!
//! Rates are Gbit/s. These are other machines on other days: only ratios and shapes compare with ours.

use crate::plot::{Kind, Point, Series};

/// One-way latencies of the laboratory's curves.
pub const LATENCIES_MS: [u32; 3] = [10, 50, 100];
/// One-way latency of the production path, as its authors give it.
pub const PRODUCTION_LATENCY_MS: u32 = 74;
/// What the columns of figure 9 really average to. The figure shows 87.59 and 87.71 for the last two.
pub const STREAMING_MEANS: [f64; 3] = [92.98, 86.08, 83.88];
pub const STREAMING_MEANS_AS_PRINTED: [f64; 2] = [87.59, 87.71];

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// A set of equal files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set {
    pub files: u64,
    pub file_bytes: u64,
}

/// The sets of the bulk sweep in the order of its tables: 1 KiB to 1 TiB, a mebi of files each or a tebibyte in all.
pub fn bulk_sets() -> impl Iterator<Item = Set> {
    (10..=40).map(|power| 1_u64 << power).map(|file_bytes| Set { files: (TIB / file_bytes).min(MIB), file_bytes })
}

/// The sets of the streaming sweep, each growing to a tebibyte: 4 MiB to 1 TiB.
pub fn streaming_sets() -> impl Iterator<Item = Set> {
    bulk_sets().filter(|set| set.file_bytes >= 4 * MIB)
}

/// Rate over file size at 10, 50 and 100 ms; error bars are one standard deviation.
pub fn bulk_lab() -> [Series; 3] {
    lab("zx, bulk", bulk_sets(), &BULK_LAB)
}

/// Rate over file size under BBR, CUBIC and Reno at 74 ms.
pub fn bulk_production_tls() -> [Series; 3] {
    by_control("zx, production, TLS", &BULK_PRODUCTION_TLS)
}

/// Rate over file size at 10, 50 and 100 ms as the raw data say; error bars are one standard deviation.
pub fn streaming_lab() -> [Series; 3] {
    lab("zx, streaming", streaming_sets(), &STREAMING_LAB)
}

/// The storage of the laboratory's appliance alone, over file size.
pub fn storage() -> Series {
    series("storage of the appliance".into(), bulk_sets().zip(STORAGE.iter().map(|row| row[0])))
}

/// iperf3 over one-way latency in milliseconds: of a fresh host, and the mean of the two tuned runs with both as bar.
pub fn iperf3() -> [Series; 2] {
    let fresh = IPERF3.map(|[latency_ms, fresh, ..]| Point::at(latency_ms, fresh)).to_vec();
    let tuned = IPERF3.map(|[x, _, a, b]| Point { x, y: (a + b) / 2.0, y_min: a.min(b), y_max: a.max(b) }).to_vec();
    [("iperf3 on a fresh host", fresh), ("iperf3, tuned", tuned)].map(|(name, points)| Series {
        name: format!("{name} (published)"),
        kind: Kind::Published,
        points,
    })
}

/// A set of the Fermilab study with the rates of GridFTP and of the hosted service.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Study {
    pub set: &'static str,
    pub local_client: f64,
    pub local_third_party: f64,
    /// The client that controls both servers is far from them.
    pub remote_third_party: f64,
    pub hosted_service: f64,
}

/// Table 4 and figure 8 of the Fermilab study.
pub const STUDY: [Study; 3] = [
    study("large (2-8 GB)", [87.92, 92.74, 91.19, 62.90]),
    study("medium (8 MB-1 GB)", [76.90, 90.94, 81.79, 28.49]),
    study("small (8 KB-4 MB)", [2.99, 2.57, 2.11, 2.30]),
];

const fn study(set: &'static str, rates: [f64; 4]) -> Study {
    let [local_client, local_third_party, remote_third_party, hosted_service] = rates;
    Study { set, local_client, local_third_party, remote_third_party, hosted_service }
}

fn lab(name: &str, sets: impl Iterator<Item = Set>, rows: &[[f64; 6]]) -> [Series; 3] {
    let sets: Vec<Set> = sets.collect();
    [0, 1, 2].map(|column| {
        let points = sets.iter().zip(rows).map(|(set, row)| {
            let (mean, deviation) = (row[2 * column], row[2 * column + 1]);
            Point { x: set.file_bytes as f64, y: mean, y_min: mean - deviation, y_max: mean + deviation }
        });
        let name = format!("{name}, {} ms (published)", LATENCIES_MS[column]);
        Series { name, kind: Kind::Published, points: points.collect() }
    })
}

fn by_control(name: &str, rows: &[[f64; 3]]) -> [Series; 3] {
    [(0, "BBR"), (1, "CUBIC"), (2, "Reno")].map(|(column, control)| {
        series(format!("{name}, {control}"), bulk_sets().zip(rows.iter().map(|row| row[column])))
    })
}

fn series(name: String, rates: impl Iterator<Item = (Set, f64)>) -> Series {
    let points = rates.map(|(set, rate)| Point::at(set.file_bytes as f64, rate)).collect();
    Series { name: format!("{name} (published)"), kind: Kind::Published, points }
}

/// Bulk sweep in the laboratory, figure 8: mean and standard deviation at 10, 50 and 100 ms.
pub const BULK_LAB: [[f64; 6]; 31] = [
    [0.294, 0.00, 0.277, 0.01, 0.283, 0.01],
    [0.587, 0.01, 0.563, 0.02, 0.572, 0.01],
    [1.278, 0.01, 1.265, 0.01, 1.242, 0.01],
    [2.517, 0.01, 2.520, 0.02, 2.472, 0.02],
    [5.004, 0.02, 4.907, 0.07, 4.969, 0.03],
    [9.696, 0.07, 9.668, 0.10, 9.344, 0.78],
    [18.685, 0.34, 18.756, 0.09, 18.026, 1.32],
    [27.274, 0.17, 25.828, 1.40, 23.724, 3.08],
    [47.405, 0.68, 47.863, 0.22, 42.656, 4.53],
    [84.173, 0.04, 81.942, 0.11, 81.636, 0.60],
    [91.931, 0.13, 87.309, 0.22, 86.976, 0.68],
    [95.241, 0.59, 87.230, 0.12, 87.123, 0.59],
    [96.888, 0.39, 87.092, 0.29, 87.228, 0.53],
    [97.299, 0.37, 87.121, 0.30, 87.189, 0.92],
    [97.496, 0.28, 87.285, 0.13, 86.505, 0.21],
    [97.168, 0.40, 87.260, 0.16, 87.081, 0.18],
    [96.807, 0.39, 87.453, 0.07, 86.897, 0.78],
    [96.442, 0.41, 87.375, 0.17, 87.036, 0.42],
    [96.405, 0.48, 87.476, 0.05, 87.140, 0.14],
    [96.253, 0.44, 87.600, 0.23, 87.002, 0.30],
    [96.277, 0.34, 87.636, 0.07, 86.960, 0.20],
    [96.388, 0.21, 87.693, 0.23, 86.950, 1.06],
    [96.470, 0.36, 87.617, 0.07, 86.413, 0.88],
    [96.547, 0.51, 87.461, 0.16, 86.923, 0.91],
    [96.574, 0.31, 87.723, 0.24, 87.004, 1.17],
    [96.650, 0.36, 87.591, 0.23, 87.200, 0.64],
    [96.636, 0.36, 87.603, 0.13, 86.942, 0.45],
    [96.642, 0.44, 87.557, 0.09, 86.671, 0.82],
    [96.699, 0.45, 87.568, 0.32, 86.888, 0.37],
    [96.659, 0.39, 87.359, 0.11, 86.617, 0.56],
    [96.674, 0.35, 87.673, 0.04, 87.057, 0.53],
];

/// Bulk sweep over a shared production path of 74 ms, TLS in user space, figure 5: means under BBR, CUBIC, Reno.
pub const BULK_PRODUCTION_TLS: [[f64; 3]; 31] = [
    [0.29, 0.29, 0.29],
    [0.61, 0.57, 0.57],
    [1.32, 1.19, 1.20],
    [2.61, 2.35, 2.30],
    [5.14, 4.73, 4.57],
    [10.28, 9.03, 8.96],
    [17.97, 17.64, 17.67],
    [26.22, 26.08, 28.56],
    [44.33, 44.91, 48.62],
    [60.53, 59.87, 53.50],
    [70.28, 70.85, 59.14],
    [81.67, 81.37, 61.00],
    [83.54, 82.88, 61.48],
    [84.06, 83.93, 64.75],
    [83.97, 84.26, 67.24],
    [84.36, 84.27, 61.37],
    [84.34, 84.29, 60.16],
    [84.66, 84.32, 63.02],
    [84.52, 84.25, 61.08],
    [84.49, 84.32, 58.88],
    [84.63, 84.33, 60.49],
    [84.53, 84.38, 63.40],
    [84.54, 84.35, 64.28],
    [84.52, 84.36, 64.29],
    [84.58, 84.37, 67.14],
    [84.58, 84.39, 66.53],
    [84.60, 84.27, 64.88],
    [84.55, 84.35, 66.52],
    [84.54, 84.37, 60.95],
    [84.56, 84.31, 60.12],
    [84.50, 84.38, 61.88],
];

/// The same sets written by a storage benchmark alone: the appliance of the laboratory (read off a plot, within 1), and a
/// node of an earlier evaluation.
pub const STORAGE: [[f64; 2]; 31] = [
    [0.3, 0.4],
    [0.5, 0.9],
    [1.1, 1.7],
    [2.2, 3.5],
    [4.4, 6.9],
    [9.2, 13.5],
    [18.3, 27.8],
    [33.1, 56.4],
    [64.7, 79.7],
    [105.7, 76.8],
    [210.7, 79.0],
    [387.6, 77.3],
    [447.6, 78.1],
    [458.0, 83.1],
    [457.6, 85.1],
    [457.5, 88.0],
    [457.8, 86.7],
    [457.8, 90.0],
    [457.5, 94.5],
    [457.7, 86.6],
    [456.2, 87.9],
    [456.0, 92.7],
    [455.6, 81.7],
    [423.4, 78.3],
    [455.9, 80.6],
    [455.1, 80.3],
    [456.7, 80.6],
    [455.4, 81.2],
    [456.0, 79.7],
    [456.3, 79.1],
    [456.9, 79.2],
];

/// Append streaming in the laboratory, figure 9 as its raw data say: mean and standard deviation at 10, 50 and 100 ms.
pub const STREAMING_LAB: [[f64; 6]; 19] = [
    [78.97, 0.17, 78.11, 0.22, 78.21, 1.57],
    [90.62, 0.21, 85.78, 1.76, 84.62, 4.04],
    [93.59, 2.27, 83.87, 3.08, 82.66, 4.06],
    [94.75, 0.23, 86.38, 0.60, 82.51, 3.58],
    [94.58, 0.24, 85.89, 1.03, 85.24, 3.38],
    [94.40, 0.25, 86.77, 0.14, 84.49, 4.30],
    [94.32, 0.11, 87.06, 0.21, 81.70, 4.40],
    [94.28, 0.15, 86.07, 1.18, 83.91, 3.25],
    [94.21, 0.28, 85.96, 1.75, 85.46, 2.17],
    [94.07, 0.16, 85.62, 2.28, 84.02, 3.25],
    [94.10, 0.24, 86.52, 1.46, 85.54, 1.65],
    [94.04, 0.14, 85.92, 1.21, 82.88, 4.65],
    [93.82, 0.07, 87.49, 0.52, 81.94, 0.68],
    [93.78, 0.12, 87.95, 0.17, 83.01, 4.39],
    [93.52, 0.12, 87.50, 0.32, 84.41, 5.35],
    [93.65, 0.15, 87.53, 0.15, 83.94, 2.52],
    [93.68, 0.15, 87.33, 0.05, 85.99, 1.39],
    [93.56, 0.31, 86.30, 1.69, 86.74, 0.32],
    [92.69, 1.72, 87.43, 0.53, 86.49, 0.30],
];

/// What figure 9 prints for 50 and 100 ms: its averages mix columns of different latencies. Kept to show the mistake.
pub const STREAMING_LAB_AS_PRINTED: [[f64; 2]; 19] = [
    [78.78, 77.98],
    [87.34, 86.10],
    [85.30, 87.10],
    [87.85, 86.61],
    [86.84, 89.21],
    [89.06, 89.59],
    [86.84, 89.40],
    [87.24, 87.40],
    [88.03, 89.28],
    [88.24, 88.18],
    [89.14, 88.32],
    [87.85, 86.04],
    [88.00, 87.57],
    [89.79, 88.02],
    [89.45, 89.55],
    [87.54, 89.19],
    [88.45, 89.32],
    [89.28, 88.25],
    [89.22, 89.32],
];

/// One-way latency in milliseconds; iperf3 with the settings of a fresh host, and tuned in two runs, figure 2 (read off
/// the plot, within 0.1).
pub const IPERF3: [[f64; 4]; 18] = [
    [10.0, 67.2, 97.7, 97.8],
    [12.0, 56.5, 97.8, 97.3],
    [14.0, 48.5, 96.7, 96.2],
    [16.0, 42.6, 94.7, 89.7],
    [18.0, 37.8, 90.8, 91.2],
    [20.0, 34.1, 90.7, 92.6],
    [22.0, 30.9, 88.8, 89.5],
    [24.0, 28.3, 88.2, 87.3],
    [26.0, 26.2, 88.1, 87.9],
    [28.0, 24.3, 88.1, 88.0],
    [30.0, 22.7, 86.5, 87.7],
    [40.0, 17.0, 85.7, 85.1],
    [50.0, 13.5, 84.5, 84.8],
    [60.0, 11.3, 84.5, 84.1],
    [70.0, 9.6, 83.8, 82.0],
    [80.0, 8.3, 83.4, 82.4],
    [90.0, 7.3, 82.3, 81.8],
    [100.0, 6.6, 83.6, 81.8],
];

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
        let values: Vec<f64> = values.into_iter().collect();
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn plateau(series: &Series) -> f64 {
        mean(series.points.iter().filter(|point| point.x >= (4 * MIB) as f64).map(|point| point.y))
    }

    #[track_caller]
    fn assert_means<const N: usize>(found: [f64; N], wanted: [f64; N]) {
        let is_equal = found.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() < 0.008);
        assert!(is_equal, "{found:?} is not {wanted:?}");
    }

    #[test]
    fn the_sets_are_the_sweeps() {
        assert_eq!((bulk_sets().count(), streaming_sets().count()), (31, 19));
        assert_eq!(bulk_sets().next(), Some(Set { files: 1_048_576, file_bytes: 1024 }));
        assert_eq!(bulk_sets().last(), Some(Set { files: 1, file_bytes: TIB }));
        assert_eq!(streaming_sets().next(), Some(Set { files: 262_144, file_bytes: 4 * MIB }));
    }

    #[test]
    fn the_tables_have_the_averages_that_are_derived_from_them() {
        assert_means(bulk_lab().each_ref().map(plateau), [96.68, 87.48, 86.93]);
        assert_means(bulk_production_tls().each_ref().map(plateau), [84.42, 84.23, 63.08]);
        let products = IPERF3.map(|[latency_ms, fresh, ..]| latency_ms * fresh / 8.0);
        assert!(products.iter().all(|megabytes| (81.0..86.0).contains(megabytes)), "{products:?}");
    }

    #[test]
    fn streaming_averages_are_those_of_the_columns_and_not_the_printed_ones() {
        assert_means(streaming_lab().each_ref().map(plateau), STREAMING_MEANS);
        let printed = [0, 1].map(|column| mean(STREAMING_LAB_AS_PRINTED.iter().map(|row| row[column])));
        assert_means(printed, STREAMING_MEANS_AS_PRINTED);
    }
}
