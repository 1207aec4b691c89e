//! Properties of histograms with whole counts.
//!
//! Sums, differences, compaction, coarser schemas, trims and the notation must preserve the counts. Iteration from both
//! ends must return each bucket once, and no text may make the parser panic.

use proptest::prelude::*;
use tideline_histogram::{Histogram, SCHEMA_MIN, Span};

use crate::{assert_same, compacted, parse};

fn total(cuts: &[(i32, u32)]) -> usize {
    cuts.iter().map(|(_, length)| *length as usize).sum()
}

prop_compose! {
    fn side()(cuts in prop::collection::vec((0i32..6, 1u32..5), 0..5), first in -40i32..40)(
        buckets in prop::collection::vec((0u32..50).prop_map(f64::from), total(&cuts)),
        cuts in Just(cuts),
        first in Just(first),
    ) -> (Vec<Span>, Vec<f64>) {
        let spans = cuts.iter().enumerate()
            .map(|(at, (offset, length))| Span { offset: if at == 0 { first } else { *offset }, length: *length });
        (spans.collect(), buckets)
    }
}

prop_compose! {
    /// Generates a valid histogram with whole counts at any exponential schema, without buckets inside the zero bucket.
    fn histogram()(
        schema in -4i32..=8,
        threshold in 0usize..4,
        zero in 0u32..9,
        sum in -99i32..99,
        positive in side(),
        negative in side(),
    ) -> Histogram {
        let zero_count = f64::from(zero);
        let mut histogram = Histogram {
            schema, zero_count,
            sum: f64::from(sum),
            count: zero_count + positive.1.iter().sum::<f64>() + negative.1.iter().sum::<f64>(),
            positive_spans: positive.0, positive_buckets: positive.1,
            negative_spans: negative.0, negative_buckets: negative.1,
            ..Histogram::default()
        };
        let nearest = histogram.buckets().map(|bucket| bucket.lower.abs().min(bucket.upper.abs())).fold(9.0, f64::min);
        histogram.zero_threshold = nearest.min([0.0, 1e-9, 0.03, 9.0][threshold]);
        histogram
    }
}

fn observed(histogram: &Histogram) -> f64 {
    histogram.slots().map(|slot| slot.count).sum()
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(256))]

    #[test]
    fn a_sum_holds_what_both_held(left in histogram(), right in histogram()) {
        let mut sum = left.clone();
        sum.add(&right).expect("both are exponential");
        prop_assert_eq!(sum.count, left.count + right.count);
        prop_assert_eq!(observed(&sum), sum.count);
        prop_assert_eq!(sum.validate(), Ok(()));
        let mut other_way = right.clone();
        other_way.add(&left).expect("both are exponential");
        assert_same(&compacted(sum), &compacted(other_way));
    }

    #[test]
    fn what_is_added_and_taken_away_leaves_no_trace(left in histogram(), right in histogram()) {
        let right = Histogram { schema: left.schema, zero_threshold: left.zero_threshold, ..right };
        let mut sum = left.clone();
        sum.add(&right).expect("both are exponential");
        sum.sub(&right).expect("both are exponential");
        assert_same(&compacted(sum), &compacted(left));
    }

    #[test]
    fn a_sum_is_no_reset_of_a_part(left in histogram(), right in histogram()) {
        let mut sum = left.clone();
        sum.add(&right).expect("both are exponential");
        prop_assert!(!sum.detect_reset(&left), "{} after {}", sum.notation(), left.notation());
    }

    #[test]
    fn compensated_sums_of_whole_numbers_are_plain_sums(parts in prop::collection::vec(histogram(), 2..5)) {
        let (mut plain, mut kahan, mut compensation) = (parts[0].clone(), parts[0].clone(), None);
        for part in &parts[1..] {
            plain.add(part).expect("all are exponential");
            kahan.kahan_add(part, &mut compensation).expect("all are exponential");
        }
        let compensation = compensation.expect("made at the first addition");
        prop_assert_eq!(compensation.positive_buckets.len(), kahan.positive_buckets.len());
        kahan.add(&compensation).expect("it has the sum's layout");
        assert_same(&compacted(kahan), &compacted(plain));
    }

    #[test]
    fn compaction_leaves_out_only_nothing(histogram in histogram(), empty_max in 0usize..5) {
        let mut compact = histogram.clone();
        compact.compact(empty_max);
        prop_assert_eq!(compact.validate(), Ok(()));
        let full = |histogram: &Histogram| histogram.slots().filter(|slot| slot.count != 0.0).collect::<Vec<_>>();
        prop_assert_eq!(full(&compact), full(&histogram));
        let gaps = compact.positive_spans.iter().skip(1).chain(compact.negative_spans.iter().skip(1));
        prop_assert!(gaps.clone().all(|span| span.offset as usize > empty_max));
    }

    #[test]
    fn coarser_buckets_hold_the_same(histogram in histogram(), schema in SCHEMA_MIN..=8) {
        let mut coarse = histogram.clone();
        coarse.reduce_resolution(schema);
        prop_assert_eq!(coarse.schema, schema.min(histogram.schema));
        prop_assert_eq!(observed(&coarse), observed(&histogram));
        // Coarser buckets are unions of finer buckets: below each coarse bound, the counts are equal.
        for bound in coarse.buckets().map(|bucket| bucket.upper) {
            let below = |histogram: &Histogram| {
                let within = histogram.buckets().filter(|bucket| bucket.upper <= bound);
                within.map(|bucket| bucket.count).sum::<f64>()
            };
            prop_assert_eq!(below(&coarse), below(&histogram), "at {}", bound);
        }
    }

    #[test]
    fn buckets_come_from_either_end(histogram in histogram(), from_back in prop::collection::vec(any::<bool>(), 60)) {
        let forward: Vec<_> = histogram.slots().collect();
        let mut slots = histogram.slots();
        let (mut front, mut back) = (vec![], vec![]);
        for is_back in from_back {
            if is_back { back.extend(slots.next_back()) } else { front.extend(slots.next()) }
        }
        front.extend(slots);
        front.extend(back.into_iter().rev());
        prop_assert_eq!(front, forward);
    }

    #[test]
    fn the_notation_is_read_back(histogram in histogram()) {
        let read = parse(&histogram.notation());
        assert_same(&compacted(read), &compacted(histogram));
    }

    #[test]
    fn what_lies_below_and_above_a_bound_is_all(histogram in histogram(), bound in -20f64..20.0) {
        let (mut below, mut above) = (histogram.clone(), histogram.clone());
        below.trim_upper(bound);
        above.trim_lower(bound);
        prop_assert!((below.count + above.count - histogram.count).abs() < 1e-9);
    }

    #[test]
    fn any_text_is_read_or_refused(
        text in concat!(
            "\\{\\{(schema|count|buckets|offset|n_buckets|custom_values|x)",
            ":[-0-9\\[\\] *e.]{0,20}( sum:[a-zN0-9.]{0,5})?\\}\\}",
        ),
    ) {
        if let Ok(histogram) = Histogram::parse(&text) {
            let _ = (histogram.notation(), histogram.to_string(), histogram.validate());
        }
    }
}
