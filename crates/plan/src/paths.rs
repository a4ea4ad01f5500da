//! Which of the ways between two hosts are used as paths: those that share no network card come first.
//!
//! A way leads from a card here to a card there. Two ways that share both are one path. Where one side has fewer cards than the
//! other, ways may share a card of that side if the user asked for every path: then the larger side's cards are all used.
//!
//! Invariants: pure; a chosen way uses at least one card that no other path uses, both unless sharing is allowed.
//!
//! Not here: finding the ways (`net::route`), and taking a path away again (`path_trial`).

/// A way from a card of this host to a card of the other one. Cards are numbers that mean nothing here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    pub here: u32,
    pub there: u32,
    /// Without a router between them: the two cards were meant for each other.
    pub is_direct: bool,
}

/// Chooses among `ways` so that there are at most `most` paths, with those that are in use. Returns places in `ways`, the best first.
pub fn choose(ways: &[Way], in_use: &[Way], most: usize, may_share: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ways.len()).collect();
    order.sort_by_key(|at| !ways[*at].is_direct);
    let mut chosen: Vec<usize> = Vec::new();
    for is_sharing in [false, true].into_iter().take(if may_share { 2 } else { 1 }) {
        for &at in &order {
            let taken = || in_use.iter().chain(chosen.iter().map(|at| &ways[*at]));
            if taken().count() >= most {
                break;
            }
            let is_new_here = taken().all(|way| way.here != ways[at].here);
            let is_new_there = taken().all(|way| way.there != ways[at].there);
            if is_new_here && is_new_there || is_sharing && (is_new_here || is_new_there) {
                chosen.push(at);
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn way(here: u32, there: u32, is_direct: bool) -> Way {
        Way { here, there, is_direct }
    }

    /// Every card here reaches every card there.
    fn mesh(here: u32, there: u32) -> Vec<Way> {
        (1..=here).flat_map(|here| (1..=there).map(move |there| way(here, there, false))).collect()
    }

    fn chosen(ways: &[Way], in_use: &[Way], most: usize, may_share: bool) -> Vec<(u32, u32)> {
        choose(ways, in_use, most, may_share).into_iter().map(|at| (ways[at].here, ways[at].there)).collect()
    }

    #[test]
    fn four_cards_at_each_end_are_four_paths() {
        let own = way(1, 1, false);
        assert_eq!(chosen(&mesh(4, 4), &[own], 16, true), [(2, 2), (3, 3), (4, 4)]);
        assert_eq!(chosen(&mesh(4, 4), &[own], 3, true), [(2, 2), (3, 3)]);
        // The session came by cards that are not each other's counterpart.
        assert_eq!(chosen(&mesh(2, 2), &[way(1, 2, false)], 16, false), [(2, 1)]);
    }

    #[test]
    fn cards_that_are_cabled_to_each_other_belong_together() {
        let mut ways = mesh(3, 3);
        ways.push(way(2, 3, true));
        ways.push(way(3, 2, true));
        assert_eq!(chosen(&ways, &[way(1, 1, true)], 16, false), [(2, 3), (3, 2)]);
    }

    #[test]
    fn one_card_is_shared_only_where_every_path_is_asked_for() {
        let own = way(1, 1, false);
        assert_eq!(chosen(&mesh(1, 3), &[own], 16, false), []);
        assert_eq!(chosen(&mesh(1, 3), &[own], 16, true), [(1, 2), (1, 3)]);
        assert_eq!(chosen(&mesh(2, 1), &[own], 16, true), [(2, 1)]);
        assert_eq!(chosen(&mesh(1, 1), &[own], 16, true), []);
    }

    proptest! {
        #[test]
        fn a_chosen_way_brings_a_card_that_no_other_has(
            ways in prop::collection::vec((0u32..5, 0u32..5, any::<bool>()), 0..24),
            in_use in prop::collection::vec((0u32..5, 0u32..5), 0..3),
            most in 0usize..8, may_share: bool,
        ) {
            let ways: Vec<_> = ways.into_iter().map(|(here, there, direct)| way(here, there, direct)).collect();
            let mut taken: Vec<_> = in_use.into_iter().map(|(here, there)| way(here, there, false)).collect();
            let found = choose(&ways, &taken, most, may_share);
            prop_assert!(found.is_empty() || taken.len() + found.len() <= most);
            for at in found {
                let news = [taken.iter().all(|t| t.here != ways[at].here), taken.iter().all(|t| t.there != ways[at].there)];
                let is_new = if may_share { news.contains(&true) } else { news == [true; 2] };
                prop_assert!(is_new, "{:?}", ways[at]);
                taken.push(ways[at]);
            }
        }
    }
}
