//! The laws and tests that measurements are held against.
//!
//! Pure. Not here: what is measured, and which deviation is too much.

/// Two-sided, 99 %.
const NORMAL_99: f64 = 2.576;

/// The smallest range of counts, cut off evenly on both sides, that holds 99 % of the binomial distribution.
pub fn binomial_99(trials: u64, probability: f64) -> (u64, u64) {
    if probability <= 0.0 {
        return (0, 0);
    }
    if probability >= 1.0 {
        return (trials, trials);
    }
    let n = trials as f64;
    let odds_ln = probability.ln() - (-probability).ln_1p();
    // In logarithms: the first terms of a large count are too small for a number.
    let mut term_ln = n * (-probability).ln_1p();
    let (mut below, mut low, mut k) = (term_ln.exp(), None, 0_u64);
    loop {
        if below >= 0.005 && low.is_none() {
            low = Some(k);
        }
        if below >= 0.995 || k >= trials {
            return (low.unwrap_or(k), k);
        }
        term_ln += ((n - k as f64) / (k as f64 + 1.0)).ln() + odds_ln;
        k += 1;
        below += term_ln.exp();
    }
}

/// Whether the order of what happened and what did not looks like chance, by the number of runs (Wald and Wolfowitz, 1940).
///
/// Returns the deviation from the expected number, in standard deviations; none if one of the two never happened.
pub fn runs_deviation(happened: impl IntoIterator<Item = bool>) -> Option<f64> {
    let (mut counts, mut runs, mut last) = ([0_u64; 2], 0_u64, None);
    for one in happened {
        counts[usize::from(one)] += 1;
        runs += u64::from(last != Some(one));
        last = Some(one);
    }
    let [no, yes] = counts.map(|count| count as f64);
    if no == 0.0 || yes == 0.0 {
        return None;
    }
    let mean = 2.0 * no * yes / (no + yes) + 1.0;
    let variance = (mean - 1.0) * (mean - 2.0) / (no + yes - 1.0);
    Some((runs as f64 - mean) / variance.sqrt())
}

pub fn looks_like_chance(deviation: f64) -> bool {
    deviation.abs() <= NORMAL_99
}

/// The mean length of a row of `true`; none without any.
pub fn burst_mean(happened: &[bool]) -> Option<f64> {
    let hits = happened.iter().filter(|one| **one).count();
    let bursts = happened.iter().enumerate().filter(|(at, one)| **one && (*at == 0 || !happened[at - 1])).count();
    (bursts > 0).then(|| hits as f64 / bursts as f64)
}

/// The factor of Mathis, Semke, Mahdavi and Ott ("The macroscopic behavior of the TCP congestion avoidance algorithm", CCR
/// 27(3), 1997), the square root of 3/2: the sender grows its window by one segment per round trip.
///
/// The paper's smaller factor for delayed acknowledgements, the square root of 3/4, is for senders that count
/// acknowledgements. Linux counts acknowledged segments (RFC 3465), so delaying and merging them does not slow it down.
/// Losses that come at random and not evenly make it 1.31 (Ott, Kemperman and Mathis, 1996).
pub const MATHIS_FACTOR: f64 = 1.224_744_871_391_589;

/// Payload bits per second of one Reno stream that halves its window at each of `p` events per segment.
pub fn mathis_bits_per_second(mss_bytes: u32, round_trip_s: f64, p: f64) -> f64 {
    f64::from(mss_bytes) * 8.0 * MATHIS_FACTOR / (round_trip_s * p.sqrt())
}

/// Of RFC 9438 section 5.1, for losses evenly spaced.
pub const CUBIC_RFC_FACTOR: f64 = 1.054;
/// For losses at random and a sender with fast convergence, as Linux is: a simulation of both among the tests gives it.
pub const CUBIC_FACTOR: f64 = 1.20;

/// Mean window of one CUBIC stream in segments with C = 0.4 and beta = 0.7, outside its Reno-friendly region.
pub fn cubic_window_segments(factor: f64, round_trip_s: f64, p: f64) -> f64 {
    factor * (round_trip_s / p).powf(0.75)
}

/// The share of a link of this rate that is payload when all segments are full: timestamps are in use.
pub fn goodput_bits_per_second(bits_per_second: u64, mss_bytes: u32) -> f64 {
    let mss = f64::from(mss_bytes);
    bits_per_second as f64 * mss / (mss + HEADER_BYTES + crate::scenario::FRAMING_BYTES as f64)
}

/// IPv4 20, TCP 20, timestamps 12.
const HEADER_BYTES: f64 = 52.0;

/// The exponent b of y = a x^b through points (x, y), by least squares; none with less than two different x.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let (x_mean, y_mean) = (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
    let spread: f64 = logs.iter().map(|p| (p.0 - x_mean).powi(2)).sum();
    let common: f64 = logs.iter().map(|p| (p.0 - x_mean) * (p.1 - y_mean)).sum();
    (spread > 1e-12).then(|| common / spread)
}

/// The two-sample test of Kolmogorov and Smirnov: how probable samples this different are if they have one origin.
pub fn same_origin_probability(a: &[f64], b: &[f64]) -> f64 {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let share = |sorted: &[f64], x: f64| sorted.partition_point(|y| *y <= x) as f64 / sorted.len() as f64;
    let distance = a.iter().chain(&b).map(|x| (share(&a, *x) - share(&b, *x)).abs()).fold(0.0, f64::max);
    let root = (n * m / (n + m)).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * distance;
    // The series does not converge at 0, where the probability is 1.
    if lambda < 0.2 {
        return 1.0;
    }
    let term = |k: i32| (-1_f64).powi(k - 1) * (-2.0 * f64::from(k * k) * lambda * lambda).exp();
    (2.0 * (1..=100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_intervals_are_those_of_the_tables() {
        assert_eq!(binomial_99(100, 0.5), (37, 63));
        assert_eq!((binomial_99(10, 0.0), binomial_99(10, 1.0)), ((0, 0), (10, 10)));
        assert_eq!(binomial_99(1000, 1e-9), (0, 0));
        // 1000 +- 2.576 x 31.46, where the normal distribution is close.
        let (low, high) = binomial_99(100_000, 0.01);
        assert!((918..=921).contains(&low) && (1080..=1083).contains(&high), "{low} {high}");
        let (low, high) = binomial_99(50_000_000, 1e-4);
        assert!((4815..=4822).contains(&low) && (5179..=5186).contains(&high), "{low} {high}");
    }

    #[test]
    fn runs_tell_chance_from_order() {
        assert_eq!(runs_deviation([true, true]), None);
        let alternating = runs_deviation((0..100).map(|i| i % 2 == 0)).unwrap();
        assert!(alternating > 9.0 && !looks_like_chance(alternating));
        let clumped = runs_deviation((0..100).map(|i| i < 50)).unwrap();
        assert!(clumped < -9.0 && !looks_like_chance(clumped));
        // 3 runs of 2 and 2: mean 3, exactly.
        assert_eq!(runs_deviation([true, false, false, true]), Some(0.0));
    }

    #[test]
    fn bursts_have_their_mean_length() {
        assert_eq!(burst_mean(&[true, true, false, true, false, true, true, true]), Some(2.0));
        assert_eq!(burst_mean(&[false]), None);
    }

    #[test]
    fn the_laws_give_the_figures_of_the_literature() {
        // 1448 x 8 x 1.2247 / (0.1 x 0.01)
        assert!((mathis_bits_per_second(1448, 0.1, 1e-4) - 14.187e6).abs() < 1e3);
        assert!((cubic_window_segments(CUBIC_RFC_FACTOR, 0.1, 1e-4) - 187.4).abs() < 0.1);
        assert!((cubic_window_segments(CUBIC_RFC_FACTOR, 0.1, 1e-2) - 5.9).abs() < 0.1);
        assert!((goodput_bits_per_second(10_000_000_000, 1448) - 9.4148e9).abs() < 1e5);
        assert!((goodput_bits_per_second(10_000_000_000, 8948) - 9.9004e9).abs() < 1e5);
    }

    /// The mean window of CUBIC over many losses, in units of (RTT/p)^0.75.
    fn simulated_cubic_factor(gap: &mut dyn FnMut() -> f64, is_converging_fast: bool) -> f64 {
        let (round_trip_s, step_s, c, beta) = (0.1, 0.02, 0.4, 0.7);
        let (mut top, mut window, mut last, mut segments_sum, mut seconds_sum) =
            (170.0_f64, 119.0_f64, 170.0, 0.0, 0.0);
        for _ in 0..5000 {
            let (segments_max, origin) = (gap(), top.max(window));
            let k = ((origin - window) / c).cbrt();
            let (mut seconds, mut segments) = (0.0_f64, 0.0);
            while segments < segments_max {
                window = c * (seconds - k).powi(3) + origin;
                segments += window / round_trip_s * step_s;
                seconds += step_s;
            }
            (segments_sum, seconds_sum) = (segments_sum + segments, seconds_sum + seconds);
            top = if is_converging_fast && window < last { window * (1.0 + beta) / 2.0 } else { window };
            last = top;
            window *= beta;
        }
        segments_sum / seconds_sum * round_trip_s / (round_trip_s / 1e-4_f64).powf(0.75)
    }

    #[test]
    fn the_factors_of_cubic_are_those_of_its_window_under_even_and_random_losses() {
        let even = simulated_cubic_factor(&mut || 1e4, false);
        assert!((even / CUBIC_RFC_FACTOR - 1.0).abs() < 0.05, "{even}");
        let mut random = emulator::random::Random::new(7);
        let at_random = simulated_cubic_factor(&mut || -1e4 * random.unit().ln(), true);
        assert!((at_random / CUBIC_FACTOR - 1.0).abs() < 0.04, "{at_random}");
    }

    #[test]
    fn an_exponent_is_found_and_samples_are_told_apart() {
        let law: Vec<_> = [1.0, 10.0, 70.0].map(|x: f64| (x, 3.0 * x.powf(-0.5))).to_vec();
        assert!((exponent(&law).unwrap() + 0.5).abs() < 1e-9);
        assert_eq!(exponent(&[(1.0, 1.0)]), None);
        let even: Vec<f64> = (0..100).map(f64::from).collect();
        let shifted: Vec<f64> = even.iter().map(|x| x + 40.0).collect();
        assert!(same_origin_probability(&even, &even) > 0.99);
        assert!(same_origin_probability(&even, &shifted) < 1e-4);
    }
}
