//! Part of a result after its rows: next page, estimated and overflowed columns, suggestions, cost and plan.
//!
//! JSON, NDJSON and Parquet include it; Arrow streams and CSV omit it.

use std::io::Write;

use tideline_engine::NameKind;
use tideline_engine::model::Tier;
use tideline_openapi::query::QueryPlan;
use tideline_openapi::timeline::Suggestion;
use tideline_query::{Plan, QueryCost, Summary, TierCost};

use crate::text::put_json_text;

/// Appends the members `"more":…,"next":…,"cost":{…}`.
///
/// Before the cost are `"estimated":[…]` and `"overflowed":[…]` if they list a column, and `"suggestions":[…]`
/// if the query contains an unknown name. The cost includes the plan if `has_plan` is true.
pub(crate) fn put_summary(summary: &Summary, has_plan: bool, out: &mut Vec<u8>) {
    let QueryCost {
        timelines, elapsed, ..
    } = summary.cost;
    let TierCost {
        chunks,
        points,
        values,
        bytes,
        ..
    } = summary.cost.total();
    let more = summary.more;
    let micros = elapsed.as_micros() as f64;
    // Writing to memory cannot fail.
    let _ = write!(out, "\"more\":{more},\"next\":");
    match &summary.next {
        Some(next) => put_json_text(next, out),
        None => out.extend_from_slice(b"null"),
    }
    for (member, columns) in [
        ("estimated", &summary.estimated),
        ("overflowed", &summary.overflowed),
    ] {
        if !columns.is_empty() {
            let _ = write!(out, ",\"{member}\":");
            let _ = serde_json::to_writer(&mut *out, columns);
        }
    }
    if !summary.suggestions.is_empty() {
        let shown: Vec<_> = summary.suggestions.iter().cloned().map(suggestion_view).collect();
        out.extend_from_slice(b",\"suggestions\":");
        let _ = serde_json::to_writer(&mut *out, &shown);
    }
    let _ = write!(
        out,
        ",\"cost\":{{\"timelines\":{timelines},\"chunks\":{chunks},\"points\":{points},\"values\":{values},\
         \"bytes\":{bytes},\"elapsed_ms\":{},\"tiers\":{{",
        micros / 1_000.0
    );
    for (at, tier) in Tier::ALL.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        put_tier_cost(tier, summary.cost.of(tier), out);
    }
    out.push(b'}');
    if has_plan {
        out.extend_from_slice(b",\"plan\":");
        let _ = serde_json::to_writer(&mut *out, &plan_view(summary.plan.clone()));
    }
    out.push(b'}');
}

fn put_tier_cost(tier: Tier, cost: TierCost, out: &mut Vec<u8>) {
    let TierCost {
        segments,
        chunks,
        points,
        values,
        bytes,
        summaries,
        summarized_points,
    } = cost;
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        "\"{tier}\":{{\"segments\":{segments},\"chunks\":{chunks},\"points\":{points},\"values\":{values},\
         \"bytes\":{bytes},\"summaries\":{summaries},\"summarized_points\":{summarized_points}}}"
    );
}

/// Converts a plan to its API form.
pub fn plan_view(plan: Plan) -> QueryPlan {
    let lane = if plan.is_cold { Tier::Cold } else { Tier::Hot };
    QueryPlan {
        timelines: plan.timelines,
        measurements: plan.measurements,
        fields: plan.fields,
        groups: plan.groups,
        windows: plan.windows,
        cells: plan.cells,
        lane: lane.into(),
        summaries: plan.no_summaries.is_none(),
        no_summaries: plan.no_summaries,
    }
}

/// Converts a suggestion for an unknown name to its API form.
pub fn suggestion_view(suggestion: tideline_engine::Suggestion) -> Suggestion {
    let name = |kind| (suggestion.kind == kind).then(|| suggestion.name.clone());
    Suggestion {
        measurement: name(NameKind::Measurement),
        tag: name(NameKind::Tag),
        attribute: name(NameKind::Attribute),
        field: name(NameKind::Field),
        did_you_mean: suggestion.did_you_mean,
    }
}
