//! Queries that select by value: points above a bound, and the hosts with the highest mean.
//!
//! Both kinds of queries read the last twelve hours of one field of all hosts.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Value, json};
use tideline_fleet::{FIELDS, Random};

use crate::queries::{CheckedRequest, QUERY, Queries, TOLERANCE, checked_request, instant, list};
use crate::set::{STEP, STEPS_AN_HOUR};

/// Maximum number of hours covered by these queries; shorter sets are read completely.
const HOURS: usize = 12;
/// Lower bound, exclusive, of the selected values.
const BOUND: u8 = 90;
/// Number of hosts with the highest mean.
const TOP: usize = 10;

impl<'a> Queries<'a> {
    /// Returns a query for every value above 90 of one field of all hosts in the last twelve hours, as rows.
    pub(crate) fn high_values(&self, random: &mut Random) -> CheckedRequest<'a> {
        let field = random.index(FIELDS.len());
        let steps = self.last_hours();
        let mut body = self.of_all_hosts(field, &steps);
        body["where"] = json!({"field": FIELDS[field], "gt": BOUND});
        body["times"] = json!("nanos");
        let (set, truth) = (self.set(), self.truth());
        let hosts: HashMap<String, usize> = self.hostnames().into_iter().zip(0..).collect();
        let counts = steps.flat_map(|step| (0..hosts.len()).map(move |host| (step, host)));
        let expected = counts
            .filter(|(step, host)| truth.value(*step, *host, field) > BOUND)
            .count();
        checked_request(set.table, QUERY, &body, move |response| {
            let mut found = 0;
            for series in list(&response["series"], "series")? {
                let name = series["tags"]["hostname"].as_str().unwrap_or_default();
                let host = *hosts
                    .get(name)
                    .ok_or_else(|| format!("no host is called {name:?}"))?;
                for row in list(&series["points"], "points")? {
                    let time = instant(&row[0]).ok_or_else(|| format!("{row} has no time"))?;
                    let value = truth.value(((time - set.start) / STEP) as usize, host, field);
                    if row[1] != json!(value) || value <= BOUND {
                        return Err(format!("{row} of {name:?}: {value} expected"));
                    }
                    found += 1;
                }
            }
            match found == expected {
                true => Ok(()),
                false => Err(format!("{expected} rows expected, {found} found")),
            }
        })
    }

    /// Returns a query for the ten hosts with the highest mean of one field over the last twelve hours.
    pub(crate) fn top_hosts(&self, random: &mut Random) -> CheckedRequest<'a> {
        let field = random.index(FIELDS.len());
        let steps = self.last_hours();
        let mut body = self.of_all_hosts(field, &steps);
        let rank = json!({"by": "mean", "limit": TOP});
        body["aggregate"] = json!({"functions": ["mean"], "group_by": ["hostname"], "rank": rank});
        let truth = self.truth();
        let means = self.hostnames().into_iter().zip(0..);
        let mut means: Vec<(String, f64)> = means
            .map(|(name, host)| (name, truth.mean(steps.clone(), host..host + 1, field)))
            .collect();
        means.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        means.truncate(TOP);
        checked_request(self.set().table, QUERY, &body, move |response| {
            let series = list(&response["series"], "series")?;
            let found = series.iter().map(|series| {
                let name = series["tags"]["hostname"].as_str().unwrap_or_default();
                (name, series["points"][0][1].as_f64().unwrap_or(f64::NAN))
            });
            let found: Vec<(&str, f64)> = found.collect();
            let same = |(a, b): (&(&str, f64), &(String, f64))| {
                a.0 == b.0 && (a.1 - b.1).abs() <= TOLERANCE * b.1.abs()
            };
            match found.len() == means.len() && found.iter().zip(&means).all(same) {
                true => Ok(()),
                false => Err(format!("{means:?} expected, {found:?} found")),
            }
        })
    }

    /// Returns the members that both requests share: one field of all hosts in these steps.
    fn of_all_hosts(&self, field: usize, steps: &Range<usize>) -> Value {
        json!({
            "timelines": {"where": {"property": "measurement", "equals": "cpu"}},
            "fields": [FIELDS[field]],
            "range": self.range(steps),
        })
    }

    fn last_hours(&self) -> Range<usize> {
        let steps = self.set().steps as usize;
        steps.saturating_sub(HOURS * STEPS_AN_HOUR)..steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::{Kind, Scale, Set};
    use crate::truth::Truth;

    fn series(host: usize, points: &Value) -> Value {
        json!({"tags": {"hostname": format!("host_{host}")}, "points": points})
    }

    #[test]
    fn right_answers_pass_and_others_do_not() {
        let mut set = Set::new(Kind::M, Scale::Quick, 1_790_000_000_000_000_000);
        set.hosts = 3;
        let truth = Truth::of(&set);
        let queries = Queries::new(&set, &truth);
        let field = Random::new(5).index(FIELDS.len());
        let steps = queries.last_hours();
        let rows = |host: usize, bound: u8| {
            let high = steps
                .clone()
                .filter(|step| truth.value(*step, host, field) > bound);
            let row = |step: usize| json!([set.start + step as i64 * STEP, truth.value(step, host, field)]);
            series(host, &high.map(row).collect())
        };
        let high = queries.high_values(&mut Random::new(5));
        let all: Vec<Value> = (0..3).map(|host| rows(host, BOUND)).collect();
        assert_eq!((high.check)(&json!({"series": all})), Ok(()));
        let more: Vec<Value> = (0..3).map(|host| rows(host, BOUND - 10)).collect();
        assert!((high.check)(&json!({"series": more})).is_err());
        assert!((high.check)(&json!({"series": []})).is_err());

        let top = queries.top_hosts(&mut Random::new(5));
        let mean = |host: usize| truth.mean(steps.clone(), host..host + 1, field);
        let mut hosts = [0, 1, 2];
        hosts.sort_by(|a, b| mean(*b).total_cmp(&mean(*a)));
        let ranked = hosts.map(|host| series(host, &json!([["<time>", mean(host)]])));
        assert_eq!((top.check)(&json!({"series": ranked})), Ok(()));
        let wrong = [&ranked[1], &ranked[0], &ranked[2]];
        assert!((top.check)(&json!({"series": wrong})).is_err());
    }
}
