//! The shares against cases whose answer is known by hand, and against what has to hold for any case.

use super::*;
use proptest::prelude::*;

const NO: f64 = f64::INFINITY;

fn claim(class: Class, user: u64, demand: f64) -> Claim {
    Claim { class, user, demand }
}

fn link(claims: &[Claim], rate: f64) -> Bound {
    Bound { of: (0..claims.len()).collect(), rate, guarantee: 0.0 }
}

#[track_caller]
fn assert_rates(claims: &[Claim], bounds: &[Bound], expected: &[f64]) {
    let rates: Vec<_> = divide(claims, bounds).iter().map(|share| share.rate).collect();
    let is_near = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 1e-6 * b.max(1.0);
    assert!(
        rates.len() == expected.len() && rates.iter().zip(expected).all(is_near),
        "{rates:?} instead of {expected:?}"
    );
}

#[test]
fn classes_get_their_weights_however_many_jobs_each_has() {
    use Class::{High, Low, Normal};
    let mut claims = vec![claim(High, 1, NO), claim(Normal, 1, NO), claim(Low, 1, NO)];
    assert_rates(&claims, &[link(&claims, 2100.0)], &[1600.0, 400.0, 100.0]);
    claims.extend((0..99).map(|_| claim(Low, 1, NO)));
    let shares = divide(&claims, &[link(&claims, 2100.0)]);
    assert!((shares[0].rate - 1600.0).abs() < 1e-6 && (shares[50].rate - 1.0).abs() < 1e-6, "{shares:?}");
}

#[test]
fn users_of_a_class_get_the_same_and_so_do_the_jobs_of_a_user() {
    let claims: Vec<_> = [1, 2, 2, 2].map(|user| claim(Class::Normal, user, NO)).to_vec();
    assert_rates(&claims, &[link(&claims, 600.0)], &[300.0, 100.0, 100.0, 100.0]);
}

#[test]
fn what_one_cannot_use_goes_to_its_nearest_neighbours_first() {
    use Class::{High, Low};
    let claims = [claim(High, 1, 10.0), claim(High, 2, NO), claim(Low, 1, NO)];
    // High has 16 of 17 parts; what its first user leaves is its second's.
    assert_rates(&claims, &[link(&claims, 1700.0)], &[10.0, 1590.0, 100.0]);
    let claims = [claim(High, 1, 10.0), claim(Low, 1, NO)];
    assert_rates(&claims, &[link(&claims, 1700.0)], &[10.0, 1690.0]);
}

#[test]
fn a_bound_of_some_is_kept_and_the_rest_goes_to_the_others() {
    use Class::{Low, Normal};
    let claims = [claim(Normal, 1, NO), claim(Normal, 2, NO), claim(Low, 3, NO)];
    let peer = Bound { of: vec![0], rate: 50.0, guarantee: 0.0 };
    assert_rates(&claims, &[link(&claims, 500.0), peer.clone()], &[50.0, 350.0, 100.0]);
    let shares = divide(&claims, &[link(&claims, 500.0), peer]);
    assert_eq!([shares[0].by, shares[1].by, shares[2].by], [Some(1), Some(0), Some(0)]);
}

#[test]
fn whoever_no_bound_holds_takes_nothing_from_those_that_one_does() {
    let claims = [claim(Class::High, 1, NO), claim(Class::Low, 1, NO), claim(Class::Low, 2, NO)];
    let peer = Bound { of: vec![1, 2], rate: 50.0, guarantee: 0.0 };
    assert_rates(&claims, &[peer], &[NO, 25.0, 25.0]);
    assert_rates(&claims, &[], &[NO, NO, NO]);
}

#[test]
fn a_guarantee_comes_before_the_weights_and_no_further_than_it_is_used() {
    use Class::{High, Low};
    let claims = [claim(High, 1, NO), claim(Low, 1, NO)];
    let promised = |guarantee| Bound { of: vec![1], rate: NO, guarantee };
    // 400 first, and of the other 1,700 one part in 17.
    assert_rates(&claims, &[link(&claims, 2100.0), promised(400.0)], &[1600.0, 500.0]);
    let claims = [claim(High, 1, NO), claim(Low, 1, 30.0)];
    assert_rates(&claims, &[link(&claims, 2100.0), promised(400.0)], &[2070.0, 30.0]);
    // More than there is: all of it, and no more.
    let claims = [claim(High, 1, NO), claim(Low, 1, NO)];
    assert_rates(&claims, &[link(&claims, 100.0), promised(400.0)], &[0.0, 100.0]);
}

#[test]
fn what_is_no_number_is_nothing_and_harms_nobody() {
    let claims = [claim(Class::High, 1, f64::NAN), claim(Class::Low, 1, -1.0), claim(Class::Low, 1, NO)];
    assert_rates(&claims, &[link(&claims, 100.0)], &[0.0, 0.0, 100.0]);
    let strange = Bound { of: vec![2, 9, 2], rate: f64::NAN, guarantee: f64::INFINITY };
    assert_rates(&claims, &[link(&claims, 100.0), strange], &[0.0, 0.0, 0.0]);
    assert_rates(&[], &[link(&[], 0.0)], &[]);
}

#[test]
fn ten_thousand_jobs_of_all_kinds_are_shared_out() {
    let class = |at: u64| Class::ALL[at as usize % 3];
    let claims = (0..10_000).map(|at| claim(class(at), at % 700, if at % 50 == 0 { at as f64 } else { NO }));
    let claims: Vec<_> = claims.collect();
    let shares = divide(&claims, &[link(&claims, 1e9)]);
    let sum: f64 = shares.iter().map(|share| share.rate).sum();
    assert!((sum / 1e9 - 1.0).abs() < 1e-6 && shares.iter().skip(1).all(|share| share.rate > 0.0), "{sum}");
}

fn claims() -> impl Strategy<Value = Vec<Claim>> {
    let one = (0usize..3, 0u64..4, prop_oneof![Just(NO), 0.0..1000.0f64]);
    proptest::collection::vec(one.prop_map(|(class, user, demand)| claim(Class::ALL[class], user, demand)), 1..12)
}

fn bounds() -> impl Strategy<Value = Vec<Bound>> {
    let one =
        (proptest::collection::btree_set(0usize..12, 0..8), 1.0..2000.0f64, prop_oneof![Just(0.0), 0.0..100.0f64]);
    let bound = one.prop_map(|(of, rate, guarantee)| Bound { of: of.into_iter().collect(), rate, guarantee });
    proptest::collection::vec(bound, 0..5)
}

/// Checks written apart from the filling: what a fair division is, not how one is found.
fn check(claims: &[Claim], bounds: &[Bound], shares: &[Share]) {
    let near = 1e-6;
    let is_in = |bound: &Bound, claim: usize| bound.of.contains(&claim);
    let used = |bound: &Bound| (0..claims.len()).filter(|at| is_in(bound, *at)).map(|at| shares[at].rate).sum::<f64>();
    for bound in bounds {
        assert!(used(bound) <= bound.rate * (1.0 + near), "{bound:?} is exceeded: {shares:?}");
    }
    for (at, claim) in claims.iter().enumerate() {
        let has_all = shares[at].rate >= claim.demand * (1.0 - near);
        let full: Vec<_> = bounds.iter().filter(|b| is_in(b, at) && used(b) >= b.rate * (1.0 - near)).collect();
        assert!(has_all || shares[at].rate.is_infinite() || !full.is_empty(), "{at} could have more: {shares:?}");
        assert!(shares[at].rate.is_infinite() || shares[at].rate <= claim.demand * (1.0 + near), "{at}: {shares:?}");
        // Whoever wants more has no less than any other job of its user in the same bounds.
        for (other, peer) in claims.iter().enumerate() {
            let is_alike = bounds.iter().all(|bound| is_in(bound, at) == is_in(bound, other));
            if is_alike && (claim.class, claim.user) == (peer.class, peer.user) && !has_all {
                assert!(shares[other].rate <= shares[at].rate * (1.0 + near) + near, "{at} below {other}: {shares:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn a_division_keeps_every_bound_leaves_nothing_idle_and_is_fair(claims in claims(), bounds in bounds()) {
        let shares = divide(&claims, &bounds);
        check(&claims, &bounds, &shares);
        prop_assert_eq!(divide(&claims, &bounds), shares);
    }

    #[test]
    fn nobody_starves_beside_however_many_others(claims in claims(), rate in 1.0..1e9f64) {
        let shares = divide(&claims, &[link(&claims, rate)]);
        for (claim, share) in claims.iter().zip(shares) {
            // 21 parts in all, at most 12 jobs in a class.
            prop_assert!(share.rate >= claim.demand.min(rate / 21.0 / 12.0) * (1.0 - 1e-6), "{:?}: {:?}", claim, share);
        }
    }
}
