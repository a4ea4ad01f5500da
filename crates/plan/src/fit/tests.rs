//! Fits against published measurements (G2), and against laws whose values are known.

use super::*;

/// The published sweep over file sizes from 1 KiB by twos, Gbit/s at 10, 50 and 100 ms one way: means of the raw data.
const PUBLISHED: [[f64; 3]; 31] = [
    [0.294, 0.277, 0.283],
    [0.587, 0.563, 0.572],
    [1.278, 1.265, 1.242],
    [2.517, 2.52, 2.472],
    [5.004, 4.907, 4.969],
    [9.696, 9.668, 9.344],
    [18.685, 18.756, 18.026],
    [27.274, 25.828, 23.724],
    [47.405, 47.863, 42.656],
    [84.173, 81.942, 81.636],
    [91.931, 87.309, 86.976],
    [95.241, 87.23, 87.123],
    [96.888, 87.092, 87.228],
    [97.299, 87.121, 87.189],
    [97.496, 87.285, 86.505],
    [97.168, 87.26, 87.081],
    [96.807, 87.453, 86.897],
    [96.442, 87.375, 87.036],
    [96.405, 87.476, 87.14],
    [96.253, 87.6, 87.002],
    [96.277, 87.636, 86.96],
    [96.388, 87.693, 86.95],
    [96.47, 87.617, 86.413],
    [96.547, 87.461, 86.923],
    [96.574, 87.723, 87.004],
    [96.65, 87.591, 87.2],
    [96.636, 87.603, 86.942],
    [96.642, 87.557, 86.671],
    [96.699, 87.568, 86.888],
    [96.659, 87.359, 86.617],
    [96.674, 87.673, 87.057],
];

fn published(latency: usize) -> Vec<Point> {
    let point = |(step, row): (usize, &[f64; 3])| Point {
        at: (1024u64 << step) as f64,
        bytes_per_second: row[latency] * 1.25e8,
    };
    PUBLISHED.iter().enumerate().map(point).collect()
}

/// G2: seconds a file, Gbit/s, exponent, root mean square and largest error, and the error without overlap.
#[test]
fn the_published_sweep_has_the_known_law() {
    let expected = [
        (27.25e-6, 97.0, 1.5, 0.053, 0.20, 0.077),
        (27.75e-6, 88.25, 1.5, 0.060, 0.22, 0.091),
        (27.5e-6, 88.25, 1.25, 0.074, 0.25, 0.090),
    ];
    for (latency, (a, gbit, p, rms, max, additive)) in expected.into_iter().enumerate() {
        let points = published(latency);
        let fit = SmallFiles::fit(&points).unwrap();
        assert_eq!(fit.p, p, "{fit:?}");
        assert!((fit.a_seconds / a - 1.0).abs() < 0.01, "{fit:?}");
        assert!((fit.b_bytes_per_second / 1.25e8 / gbit - 1.0).abs() < 0.01, "{fit:?}");
        assert!((fit.rms - rms).abs() < 0.001 && (fit.max - max).abs() < 0.01, "{fit:?}");
        assert!((SmallFiles::with_exponent(&points, 1.0).rms - additive).abs() < 0.002);
    }
}

fn made(law: &Law, ns: impl Iterator<Item = u32>, noise: &[f64]) -> Vec<Point> {
    let point = |(at, n): (usize, u32)| Point {
        at: f64::from(n),
        bytes_per_second: law.value(n) * noise.get(at % noise.len().max(1)).copied().unwrap_or(1.0),
    };
    ns.enumerate().map(point).collect()
}

const NS: [u32; 8] = [1, 2, 3, 4, 8, 12, 16, 32];

#[test]
fn laws_are_found_again_in_their_own_values() {
    let f1 = Law::F1 { beta: 7.05e9, alpha: 12.0, knob: "n".into(), scale: 1.0 };
    let Law::F1 { beta, alpha, .. } = falling(&made(&f1, NS.into_iter(), &[]), "n").unwrap().law else { panic!() };
    assert!((beta / 7.05e9 - 1.0).abs() < 1e-3 && (alpha / 12.0 - 1.0).abs() < 1e-3, "{beta} {alpha}");
    let f2 = Law::F2 { lambda: 5e8, sigma: 0.05, kappa: 0.004, knob: "n".into(), scale: 1.0 };
    let found = rising(&made(&f2, NS.into_iter(), &[]), "n").unwrap();
    let Law::F2 { lambda, sigma, kappa, .. } = found.law else { panic!() };
    assert!((lambda / 5e8 - 1.0).abs() < 1e-3 && (sigma - 0.05).abs() < 1e-3 && (kappa - 0.004).abs() < 1e-4);
    assert_eq!(found.doubt, None);
    let f4 = Law::F4 { nic: 1.2e9, theta: 0.41e9, knob: "t".into() };
    let Law::F4 { nic, theta, .. } = bent(&made(&f4, NS.into_iter(), &[]), "t").unwrap().law else { panic!() };
    assert!((nic / 1.2e9 - 1.0).abs() < 1e-6 && (theta / 0.41e9 - 1.0).abs() < 1e-6);
}

#[test]
fn noise_moves_a_law_by_no_more_than_itself() {
    let noise = [1.04, 0.97, 1.02, 0.95, 1.01, 1.03, 0.98];
    let f1 = Law::F1 { beta: 7.05e9, alpha: 12.0, knob: "n".into(), scale: 1.0 };
    let found = falling(&made(&f1, NS.into_iter().chain(NS), &noise), "n").unwrap();
    assert!((0.01..0.05).contains(&found.rms), "{}", found.rms);
    for n in NS {
        assert!((found.law.value(n) / f1.value(n) - 1.0).abs() < 0.04, "{n}");
    }
}

/// The number of streams that a plan takes for a device of that law.
fn planned(law: &Law) -> u32 {
    let law = serde_json::to_string(law).unwrap();
    let text = format!(
        r#"{{"v":1,"knobs":[{{"name":"n","min":1,"max":32}}],
            "edges":[{{"name":"e","from":"Src","to":"Dst","capacity":{law}}}]}}"#
    );
    let graph = crate::graph::Graph::parse(&text).unwrap();
    crate::solve::solve(&graph, None).unwrap().settings[0]
}

/// By the law that is fitted, and by a table of the points as they are.
#[test]
fn a_peak_behind_noise_is_found_within_a_twentieth_of_its_rate() {
    let truth = Law::F2 { lambda: 5e8, sigma: 0.05, kappa: 0.004, knob: "n".into(), scale: 1.0 };
    let peak = (1..=32).map(|n| truth.value(n)).fold(0.0, f64::max);
    assert!(truth.value(8) < 0.9 * peak && truth.value(32) < 0.9 * peak, "it is no plateau");
    let noise = [1.04, 0.97, 1.02, 0.95, 1.01, 1.03, 0.98];
    for first in 0..noise.len() {
        let points = made(&truth, NS.into_iter(), &[&noise[first..], &noise[..first]].concat());
        let table = points.iter().map(|point| (point.at.to_string(), point.bytes_per_second)).collect();
        for law in [rising(&points, "n").unwrap().law, Law::F5 { points: table, knob: "n".into() }] {
            let n = planned(&law);
            assert!(truth.value(n) >= 0.95 * peak, "{n} by {law:?}");
        }
    }
}

#[test]
fn points_that_determine_nothing_are_refused() {
    let point = |at, bytes_per_second| Point { at, bytes_per_second };
    assert!(matches!(falling(&[point(1.0, 1e9), point(1.0, 1.1e9)], "n"), Err(Unfit::TooFew { needed: 2, given: 1 })));
    assert!(matches!(falling(&[point(1.0, 1e9), point(2.0, 2e9)], "n"), Err(Unfit::OtherShape(_))));
    assert!(matches!(bent(&[point(1.0, 1e9), point(2.0, 0.0)], "n"), Err(Unfit::NoRate { .. })));
    assert!(matches!(SmallFiles::fit(&[point(f64::NAN, 1.0)]), Err(Unfit::NoRate { .. })));
    // Their squares would be no numbers.
    assert!(matches!(falling(&[point(1.0, 1e300), point(2.0, 1e290)], "n"), Err(Unfit::NoRate { .. })));
    assert!(bent(&[point(1.0, 1e9), point(2.0, 2e9)], "n").unwrap().doubt.is_some());
}
