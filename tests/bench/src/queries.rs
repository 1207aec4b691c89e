//! Queries and the checks of their results.
//!
//! Each check compares the result with the generated values, so that a wrong result fails the run. In large
//! results, all rows are counted and the values of some rows are compared.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Value, json};
use tideline_fleet::{FIELDS, Random};
use tideline_model::Timestamp;

use crate::set::{HOUR, STEP, STEPS_A_MINUTE, STEPS_AN_HOUR, Set};
use crate::truth::Truth;

/// Request with the check of its result.
pub(crate) struct CheckedRequest<'a> {
    pub(crate) path: String,
    pub(crate) body: String,
    /// Check of a response; the error describes the difference.
    pub(crate) check: Check<'a>,
}

type Check<'a> = Box<dyn Fn(&Value) -> Result<(), String> + 'a>;

/// Generator of queries for a set with known values.
#[derive(Debug)]
pub(crate) struct Queries<'a> {
    set: &'a Set,
    truth: &'a Truth,
    /// Tags of each host, by host number.
    tags: Vec<BTreeMap<&'static str, String>>,
}

/// Content type of the requests.
pub(crate) const CONTENT_TYPE: &str = "application/json";
/// Relative tolerance of a mean: the documented precision of float sums.
pub(crate) const TOLERANCE: f64 = 1e-12;
/// Number of timelines per page of search results.
const PAGE: usize = 100;
/// Maximum number of hours of [`Queries::all_fields_by_hour`].
const WIDE_HOURS: usize = 12;
pub(crate) const QUERY: &str = "query";
const LATEST: &str = "latest";
const SEARCH: &str = "timelines/search";

impl<'a> Queries<'a> {
    pub(crate) fn new(set: &'a Set, truth: &'a Truth) -> Self {
        let tags = truth.hosts().iter().map(|host| host.tags().into_iter().collect());
        Self {
            set,
            truth,
            tags: tags.collect(),
        }
    }

    /// Returns the set that is queried.
    pub(crate) fn set(&self) -> &'a Set {
        self.set
    }

    /// Returns all values of the set.
    pub(crate) fn truth(&self) -> &'a Truth {
        self.truth
    }

    /// Returns a query for one field of one timeline by minute over one hour.
    pub(crate) fn one_timeline(&self, random: &mut Random) -> CheckedRequest<'a> {
        let host = random.index(self.tags.len());
        let field = random.index(FIELDS.len());
        let minutes = (self.set.steps as usize).saturating_sub(STEPS_AN_HOUR) / STEPS_A_MINUTE;
        let first = random.index(minutes + 1) * STEPS_A_MINUTE;
        let steps = first..(first + STEPS_AN_HOUR).min(self.set.steps as usize);
        let body = json!({
            "timelines": {"where": {"tag": "hostname", "equals": self.tags[host]["hostname"]}},
            "fields": [FIELDS[field]],
            "range": self.range(&steps),
            "aggregate": {"functions": ["mean"], "window": "1m"},
        });
        let truth = self.truth;
        let starts = self.windows(&steps, STEPS_A_MINUTE);
        checked_request(self.set.table, QUERY, &body, move |response| {
            let cells = cells(response, None, &FIELDS[field..=field])?;
            same_rows(&cells, starts.len())?;
            starts.iter().try_for_each(|(time, steps)| {
                let expected = [truth.mean(steps.clone(), host..host + 1, field)];
                same(&cells, "", *time, &expected)
            })
        })
    }

    /// Returns a query for one field of one timeline by minute over the whole set.
    pub(crate) fn one_day(&self, random: &mut Random) -> CheckedRequest<'a> {
        let (host, field) = (random.index(self.tags.len()), random.index(FIELDS.len()));
        let steps = 0..self.set.steps as usize;
        let body = json!({
            "timelines": {"where": {"tag": "hostname", "equals": self.tags[host]["hostname"]}},
            "fields": [FIELDS[field]],
            "range": self.range(&steps),
            "aggregate": {"functions": ["mean"], "window": "1m"},
        });
        let truth = self.truth;
        let starts = self.windows(&steps, STEPS_A_MINUTE);
        checked_request(self.set.table, QUERY, &body, move |response| {
            let cells = cells(response, None, &FIELDS[field..=field])?;
            same_rows(&cells, starts.len())?;
            starts.iter().try_for_each(|(time, steps)| {
                let expected = [truth.mean(steps.clone(), host..host + 1, field)];
                same(&cells, "", *time, &expected)
            })
        })
    }

    /// Returns a query for all fields over all hosts in windows of `minutes` minutes over the whole set.
    pub(crate) fn everything(&self, minutes: usize) -> CheckedRequest<'a> {
        let steps = 0..self.set.steps as usize;
        let body = json!({
            "timelines": {"where": {"property": "measurement", "equals": "cpu"}},
            "fields": FIELDS,
            "range": self.range(&steps),
            "aggregate": {"functions": ["mean"], "window": format!("{minutes}m")},
        });
        let (truth, hosts) = (self.truth, self.tags.len());
        let starts = self.windows(&steps, minutes * STEPS_A_MINUTE);
        checked_request(self.set.table, QUERY, &body, move |response| {
            let cells = cells(response, None, &FIELDS)?;
            same_rows(&cells, starts.len())?;
            // All rows are counted; the values of one row are recomputed.
            let (time, steps) = &starts[starts.len() / 2];
            let mean = |field| truth.mean(steps.clone(), 0..hosts, field);
            let expected: [f64; FIELDS.len()] = std::array::from_fn(mean);
            same(&cells, "", *time, &expected)
        })
    }

    /// Returns a query for one field over all hosts by minute over the whole set.
    pub(crate) fn all_hosts_by_minute(&self, random: &mut Random) -> CheckedRequest<'a> {
        let field = random.index(FIELDS.len());
        let steps = 0..self.set.steps as usize;
        let body = json!({
            "timelines": {"where": {"property": "measurement", "equals": "cpu"}},
            "fields": [FIELDS[field]],
            "range": self.range(&steps),
            "aggregate": {"functions": ["mean"], "window": "1m"},
        });
        let (truth, hosts) = (self.truth, self.tags.len());
        let starts = self.windows(&steps, STEPS_A_MINUTE);
        checked_request(self.set.table, QUERY, &body, move |response| {
            let cells = cells(response, None, &FIELDS[field..=field])?;
            same_rows(&cells, starts.len())?;
            starts.iter().try_for_each(|(time, steps)| {
                let expected = [truth.mean(steps.clone(), 0..hosts, field)];
                same(&cells, "", *time, &expected)
            })
        })
    }

    /// Returns a query for all fields of every host by hour over twelve whole hours, fewer in smaller sets.
    pub(crate) fn all_fields_by_hour(&self, random: &mut Random) -> CheckedRequest<'a> {
        // Sets begin at a full minute, windows at a full hour.
        let offset = (-self.set.start).rem_euclid(HOUR) / STEP;
        let whole = (self.set.steps as usize - offset as usize) / STEPS_AN_HOUR;
        let hours = whole.min(WIDE_HOURS);
        let first = offset as usize + random.index(whole - hours + 1) * STEPS_AN_HOUR;
        let steps = first..first + hours * STEPS_AN_HOUR;
        let body = json!({
            "timelines": {"where": {"property": "measurement", "equals": "cpu"}},
            "fields": FIELDS,
            "range": self.range(&steps),
            "aggregate": {"functions": ["mean"], "window": "1h", "group_by": ["hostname"]},
        });
        let truth = self.truth;
        let starts = self.windows(&steps, STEPS_AN_HOUR);
        let names = self.hostnames();
        // All rows are counted; the means of some hosts are recomputed.
        let checked: Vec<usize> = (0..8).map(|_| random.index(names.len())).collect();
        checked_request(self.set.table, QUERY, &body, move |response| {
            let cells = cells(response, Some("hostname"), &FIELDS)?;
            same_rows(&cells, starts.len() * names.len())?;
            checked.iter().try_for_each(|host| {
                starts.iter().try_for_each(|(time, steps)| {
                    let mean = |field| truth.mean(steps.clone(), *host..*host + 1, field);
                    let expected: [f64; FIELDS.len()] = std::array::from_fn(mean);
                    same(&cells, &names[*host], *time, &expected)
                })
            })
        })
    }

    /// Returns a query for the latest values of all fields of all hosts.
    pub(crate) fn latest(&self) -> CheckedRequest<'a> {
        let body = json!({ "timelines": {"where": {"property": "measurement", "equals": "cpu"}} });
        let (truth, step) = (self.truth, self.set.steps as usize - 1);
        let time = self.instant(step);
        let names = self.hostnames();
        checked_request(self.set.table, LATEST, &body, move |response| {
            let cells = cells(response, Some("hostname"), &FIELDS)?;
            same_rows(&cells, names.len())?;
            names.iter().enumerate().try_for_each(|(host, name)| {
                let value = |field| f64::from(truth.value(step, host, field));
                let expected: [f64; FIELDS.len()] = std::array::from_fn(value);
                same(&cells, name, time, &expected)
            })
        })
    }

    /// Returns a search for the timelines that share two tag values with a random timeline.
    pub(crate) fn two_tags(&self, keys: [&'static str; 2], random: &mut Random) -> CheckedRequest<'a> {
        let like = &self.tags[random.index(self.tags.len())];
        let wanted = keys.map(|key| (key, like[key].clone()));
        let conditions = wanted
            .each_ref()
            .map(|(key, value)| json!({"tag": key, "equals": value}));
        let body = json!({ "where": {"and": conditions}, "limit": PAGE });
        let is_hit = |tags: &&BTreeMap<&str, String>| wanted.iter().all(|(key, value)| &tags[key] == value);
        let total = self.tags.iter().filter(is_hit).count();
        checked_request(self.set.table, SEARCH, &body, move |response| {
            let found = list(&response["timelines"], "timelines")?;
            if response["total"] != json!(total) || found.len() != total.min(PAGE) {
                let (pages, page) = (&response["total"], found.len());
                return Err(format!(
                    "{total} hits expected, {pages} found, {page} on the page"
                ));
            }
            let good = |timeline: &&Value| {
                let tags = &timeline["tags"];
                wanted.iter().all(|(key, value)| tags[key] == **value)
            };
            match found.iter().find(|timeline| !good(timeline)) {
                Some(other) => Err(format!("{other} does not match the condition")),
                None => Ok(()),
            }
        })
    }

    /// Returns the start time and the steps of each window; a window has `width` steps, the last window may have fewer.
    fn windows(&self, steps: &Range<usize>, width: usize) -> Vec<(i64, Range<usize>)> {
        let starts = steps.clone().step_by(width);
        starts
            .map(|start| (self.instant(start), start..(start + width).min(steps.end)))
            .collect()
    }

    /// Returns the time range of these steps in the form of a request.
    pub(crate) fn range(&self, steps: &Range<usize>) -> Value {
        json!({"start": self.instant(steps.start), "end": self.instant(steps.end)})
    }

    fn instant(&self, step: usize) -> i64 {
        self.set.start + step as i64 * STEP
    }

    pub(crate) fn hostnames(&self) -> Vec<String> {
        self.tags.iter().map(|tags| tags["hostname"].clone()).collect()
    }
}

/// Returns a query that counts the values of one field: every acknowledged row must occur once.
pub(crate) fn count(set: &Set) -> CheckedRequest<'static> {
    let rows = set.rows();
    let body = json!({
        "timelines": {"where": {"property": "measurement", "equals": "cpu"}},
        "fields": [FIELDS[0]],
        "range": {"start": set.start, "end": set.end()},
        "aggregate": {"functions": ["count"]},
    });
    checked_request(set.table, QUERY, &body, move |response| {
        let cells = cells(response, None, &FIELDS[..1])?;
        match cells.values().next() {
            Some(row) if cells.len() == 1 && row == &[rows as f64] => Ok(()),
            _ => Err(format!("{rows} expected, {cells:?} found")),
        }
    })
}

/// Rows of a result by group and timestamp; the columns are in the order of the fields.
pub(crate) type Cells = BTreeMap<(String, i64), Vec<f64>>;

/// Builds a request to a resource of a table.
pub(crate) fn checked_request<'a>(
    table: &str,
    resource: &str,
    body: &Value,
    check: impl Fn(&Value) -> Result<(), String> + 'a,
) -> CheckedRequest<'a> {
    CheckedRequest {
        path: format!("/v1/tables/{table}/{resource}"),
        body: body.to_string(),
        check: Box::new(check),
    }
}

/// Parses a result. The group is the value of the tag `group`, or empty; values are in the order of `fields`. Cells
/// that are not numbers become NaN.
pub(crate) fn cells(response: &Value, group: Option<&str>, fields: &[&str]) -> Result<Cells, String> {
    let mut cells = Cells::new();
    for series in list(&response["series"], "series")? {
        let name = match group {
            Some(tag) => series["tags"][tag].as_str().ok_or("a series without its tag")?,
            None => "",
        };
        let columns = list(&series["columns"], "columns")?;
        let places: Vec<usize> = fields
            .iter()
            .map(|field| columns.iter().position(|column| is_of(column, field)))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("columns {columns:?} do not hold {fields:?}"))?;
        for row in list(&series["points"], "points")? {
            let time = instant(&row[0]).ok_or_else(|| format!("{row} has no time"))?;
            let values = places
                .iter()
                .map(|place| row[*place].as_f64().unwrap_or(f64::NAN));
            if cells.insert((name.to_owned(), time), values.collect()).is_some() {
                return Err(format!("two rows of {name:?} at {time}"));
            }
        }
    }
    Ok(cells)
}

/// Returns true if a column such as `usage_user` or `mean(usage_user)` holds values of this field.
fn is_of(column: &Value, field: &str) -> bool {
    let name = column.as_str().unwrap_or_default();
    let inner = name
        .split_once('(')
        .map_or(name, |(_, inner)| inner.trim_end_matches(')'));
    inner == field
}

pub(crate) fn list<'v>(value: &'v Value, what: &str) -> Result<&'v Vec<Value>, String> {
    value
        .as_array()
        .ok_or_else(|| format!("no list of {what} in the response"))
}

/// Returns the nanoseconds of a timestamp in a response: an RFC 3339 text or a number. `None` if it is neither.
pub(crate) fn instant(time: &Value) -> Option<i64> {
    match time {
        Value::String(text) => Timestamp::parse_rfc3339(text).map(Timestamp::nanos),
        number => number.as_i64(),
    }
}

fn same_rows(cells: &Cells, expected: usize) -> Result<(), String> {
    match cells.len() == expected {
        true => Ok(()),
        false => Err(format!("{expected} rows expected, {} found", cells.len())),
    }
}

fn same(cells: &Cells, group: &str, time: i64, expected: &[f64]) -> Result<(), String> {
    let found = cells.get(&(group.to_owned(), time));
    let found = found.ok_or_else(|| format!("no row of {group:?} at {time}"))?;
    let close = |(found, expected): (&f64, &f64)| (found - expected).abs() <= TOLERANCE * expected.abs();
    match found.len() == expected.len() && found.iter().zip(expected).all(close) {
        true => Ok(()),
        false => Err(format!(
            "{group:?} at {time}: {expected:?} expected, {found:?} found"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::{Kind, Scale};

    fn small() -> Set {
        let mut set = Set::new(Kind::S, Scale::Quick, 1_790_000_000_000_000_000);
        set.hosts = 2;
        set
    }

    fn series(host: &str, points: &Value) -> Value {
        let columns: Vec<&str> = ["time"].into_iter().chain(FIELDS).collect();
        json!({"tags": {"hostname": host}, "columns": columns, "points": points})
    }

    #[test]
    fn the_right_latest_values_pass_and_others_do_not() {
        let set = small();
        let truth = Truth::of(&set);
        let queries = Queries::new(&set, &truth);
        let send = queries.latest();
        let step = set.steps as usize - 1;
        let row = |host: usize, error: u8| {
            let values = (0..FIELDS.len()).map(|field| json!(truth.value(step, host, field) + error));
            let cells: Vec<Value> = [json!(queries.instant(step))].into_iter().chain(values).collect();
            json!([cells])
        };
        let (zero, one) = (series("host_0", &row(0, 0)), series("host_1", &row(1, 0)));
        assert_eq!((send.check)(&json!({"series": [zero, one]})), Ok(()));
        let wrong = series("host_1", &row(1, 1));
        let refused = (send.check)(&json!({"series": [zero, wrong]})).expect_err("a value is off by one");
        assert!(refused.contains("host_1"), "{refused}");
        assert!(
            (send.check)(&json!({"series": [zero]})).is_err(),
            "a host is missing"
        );
        assert!(
            (send.check)(&json!({"series": [zero, zero]})).is_err(),
            "a host is there twice"
        );
        assert!((send.check)(&json!({"message": "no"})).is_err());
    }

    #[test]
    fn a_lost_row_and_a_doubled_row_change_the_count() {
        let set = small();
        let send = count(&set);
        let response = |rows: u64| {
            let name = format!("count({})", FIELDS[0]);
            json!({"series": [{"tags": {}, "columns": ["time", name], "points": [[set.start, rows]]}]})
        };
        assert_eq!((send.check)(&response(set.rows())), Ok(()));
        assert!((send.check)(&response(set.rows() - 1)).is_err());
        assert!((send.check)(&response(set.rows() + 1)).is_err());
        assert!((send.check)(&json!({"series": []})).is_err());
    }
}
