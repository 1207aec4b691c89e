//! Bodies and parameters of the HTTP API: data types with their JSON form and OpenAPI schema.
//!
//! The types are independent of the server and its engine, so that the command line can use them too; `services/http`
//! converts them to engine calls. The OpenAPI document is committed as `openapi/openapi.json`, and a test of
//! `services/http` fails when it is out of date. The doc comments of this crate are the descriptions in that document.
//!
//! Rules of the native API: requests with unknown members are refused; timestamps in responses are RFC 3339 text or
//! integer nanoseconds, and requests accept all forms of [`TimeInput`]; durations are text such as `90s` or `30d`; a
//! list with pages returns an opaque token for the next page.
//!
//! | module | holds |
//! |---|---|
//! | [`condition`] | [`Condition`] on timelines, [`ValueCondition`](condition::ValueCondition) on points, [`RowFilter`](condition::RowFilter) on rows |
//! | [`audit`] | audit records |
//! | [`archive`] | archives: state, restore, unused files |
//! | [`attach`] | tables from the archive of another database |
//! | [`attribute`] | [`AttributeValue`]: values that users add to timelines |
//! | [`feed`] | feeds and messages |
//! | [`geo`] | geo points and areas |
//! | [`error`] | [`ErrorBody`]: the error body of all routes except those of InfluxDB, Prometheus and OTLP |
//! | [`time`] | [`TimeInput`], [`DurationText`] |
//! | [`table`] | tables and their settings |
//! | [`wide`] | settings of wide tables |
//! | [`row`] | rows of wide tables |
//! | [`part`] | parts of wide tables that are divided by time |
//! | [`index`] | secondary indexes of wide tables |
//! | [`blob`] | large values of rows |
//! | [`rekey`] | copies of rows into a table with another key |
//! | [`row_aggregate`] | aggregates of rows |
//! | [`row_explain`] | explanations of reads of rows |
//! | [`row_search`] | search indexes, and searches over rows |
//! | [`row_advice`] | advice on wide tables and queries |
//! | [`row_statistics`] | stored rows and load of wide tables |
//! | [`row_why`] | diagnosis of one key |
//! | [`sql`] | SQL statements on wide tables |
//! | [`policy`] | policies for the aging of points |
//! | [`preview`] | effects of a policy, without applying it |
//! | [`statistics`] | stored points, hot key ranges and largest machines of a table |
//! | [`points`] | writes in JSON, and the report of a write |
//! | [`query`] | queries of points and their results |
//! | [`tier`] | hot, cold and archive tier |
//! | [`timeline`] | search, description and attributes of timelines |
//! | [`facet`] | numbers of timelines by values |
//! | [`unique`] | JSON objects whose names must be unique |
//! | [`watch`] | new points and timelines as events |
//! | [`change`] | change streams, consumer groups and webhooks |
//! | [`search`] | saved searches |
//! | [`bulk`] | attribute changes of many timelines |
//! | [`cardinality`] | numbers of distinct names |
//! | [`name`] | lists of measurements, tags, fields |
//! | [`delete`] | deletes of points and of timelines |
//! | [`job`] | background jobs |
//! | [`tenant`] | tenants and their budgets |
//! | [`token`] | tokens, their roles and scopes |
//! | [`clock`] | the clock used for expiry |
//! | [`operation`] | health and readiness |
//! | [`plain`] | parsing of JSON bodies with understandable error messages |
//! | `present` | members that are `null`, distinguished from missing ones |
//! | `named` | schemas of enums that `tideline-model` defines |
//! | [`influx`] | response bodies of the InfluxDB routes |
//! | [`prometheus`] | response bodies of the Prometheus routes |
//! | [`otlp`] | response bodies of the OTLP routes |
//!
//! # Examples
//!
//! ```
//! use tideline_openapi::query::PointQuery;
//!
//! let request: PointQuery = serde_json::from_str(r#"{"fields": ["usage"]}"#)?;
//! assert_eq!(request.fields, ["usage"]);
//! let unknown = serde_json::from_str::<PointQuery>(r#"{"field": ["usage"]}"#);
//! assert!(unknown.is_err(), "unknown members are refused");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod archive;
pub mod attach;
pub mod attribute;
pub mod audit;
pub mod blob;
pub mod bulk;
pub mod cardinality;
pub mod change;
pub mod clock;
pub mod condition;
pub mod delete;
pub mod error;
pub mod facet;
pub mod feed;
pub mod geo;
pub mod index;
pub mod influx;
pub mod job;
pub mod name;
pub mod operation;
pub mod otlp;
pub mod part;
pub mod plain;
pub mod points;
pub mod policy;
pub mod preview;
pub mod prometheus;
pub mod query;
pub mod rekey;
pub mod row;
pub mod row_advice;
pub mod row_aggregate;
pub mod row_explain;
pub mod row_search;
pub mod row_statistics;
pub mod row_why;
pub mod search;
pub mod sql;
pub mod statistics;
pub mod table;
pub mod tenant;
pub mod tier;
pub mod time;
pub mod timeline;
pub mod token;
pub mod unique;
pub mod watch;
pub mod wide;

mod named;
mod present;

pub use attribute::AttributeValue;
pub use condition::{Condition, Scalar};
pub use error::{ErrorBody, ErrorCode};
pub use tideline_model as model;
pub use time::{DurationText, TimeInput};
