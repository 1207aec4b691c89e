//! Attributes of a data point as the labels of its series.
//!
//! The labels of a series are those of its attributes, then those of its resource and scope: promoted resource
//! attributes, `job`, `instance` and scope labels. The labels of resource and scope are encoded once, and appended to
//! those of each data point.
//!
//! Data points of a metric usually have the same attribute names in the same order. A [`Plan`] keeps the translated
//! names of such a sequence, so that a data point with a known sequence costs one comparison per name and one copy
//! per label. Two cases are encoded by [`Labels::merged`], which applies the rules of Prometheus one by one: a
//! sequence with overlapping, invalid or reserved labels, and a point with an empty value.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use tideline_wire::varint;

use super::super::labels::{self, METRIC_NAME};
use super::super::wire::{Fields, Payload, Read};
use super::settings::OtlpSettings;
use super::{any_value, label_name};
use crate::reject::Reason;
use crate::series_key::{KEY_BYTES_MAX, TAGS_MAX};

/// Labels of buckets and quantiles. An attribute with such a label is dropped.
const RESERVED: [&[u8]; 2] = [b"le", b"quantile"];
/// Maximum number of plans kept; the oldest is replaced.
const PLANS_MAX: usize = 32;
/// Maximum number of translated names kept. A body crafted to exhaust the memory could have millions.
const NAMES_MAX: usize = 4_096;

/// Attribute: a `KeyValue { 1: string key, 2: AnyValue value }` message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute<'a> {
    /// Name, with its encoded length in front.
    key: &'a [u8],
    /// Undecoded value.
    pub(super) value: &'a [u8],
}

/// Decodes an attribute.
#[inline]
pub(super) fn key_value(message: &[u8]) -> Read<Attribute<'_>> {
    let mut attribute = Attribute {
        key: b"\0",
        value: b"",
    };
    let mut fields = Fields::new(message);
    loop {
        let before = fields.rest();
        match fields.next()? {
            None => return Ok(attribute),
            Some((1, payload)) => {
                let text = payload.bytes()?;
                let spelt = before.len() - fields.rest().len();
                // The tag takes one byte unless it is encoded with redundant bytes.
                let length = text.len() + varint::len(text.len() as u64);
                attribute.key = match spelt - length {
                    1 => &before[1..spelt],
                    _ => {
                        return Err(super::super::wire::Malformed(
                            "an attribute name has redundant bytes",
                        ));
                    }
                };
            }
            Some((2, payload)) => attribute.value = payload.bytes()?,
            Some(_) => {}
        }
    }
}

impl<'a> Attribute<'a> {
    /// Returns the attribute name without its length.
    pub(super) fn key_text(&self) -> &'a [u8] {
        let mut fields = Fields::new(self.key);
        match fields.varint() {
            Ok(_) => fields.rest(),
            Err(_) => b"",
        }
    }
}

/// Returns the attributes of a resource, scope or exemplar: the `KeyValue` messages in a field, up to one more than
/// [`TAGS_MAX`].
pub(super) fn list(message: &[u8], field: u32) -> Read<Vec<Attribute<'_>>> {
    let mut list = Vec::new();
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        if let (true, Payload::Bytes(message)) = (number == field && list.len() <= TAGS_MAX, payload) {
            list.push(key_value(message)?);
        }
    }
    Ok(list)
}

/// Translated names of a sequence of attributes.
#[derive(Debug, Default)]
struct Plan {
    /// Names of the attributes with their lengths, one after another.
    keys: Vec<u8>,
    /// End of each name in `keys`, and of its label in `labels`.
    ends: Vec<(u32, u32)>,
    /// Names of the labels with their lengths, one after another.
    labels: Vec<u8>,
    /// False if two labels, including those of resource and scope, have the same name, or if a name is invalid or
    /// reserved; see [`Labels::merged`].
    is_plain: bool,
}

impl Plan {
    #[inline]
    fn is_of(&self, attributes: &[Attribute<'_>]) -> bool {
        let mut from = 0;
        self.ends.len() == attributes.len()
            && self.ends.iter().zip(attributes).all(|((end, _), attribute)| {
                let key = &self.keys[from..*end as usize];
                from = *end as usize;
                key == attribute.key
            })
    }
}

/// Label of a resource or scope.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OuterLabel {
    name: Vec<u8>,
    value: Vec<u8>,
    /// True if a nonempty attribute of the data point with the same name takes precedence over this label.
    is_promoted: bool,
}

/// Translated name of an attribute, or the reason why the attribute cannot be a label.
type LabelName = Result<Box<[u8]>, Reason>;
/// Values of labels by their names.
type LabelMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Builder of the labels of data points.
#[derive(Debug)]
pub(super) struct Labels<'s> {
    settings: &'s OtlpSettings,
    /// Label name of each attribute name, or the reason why the attribute cannot be a label.
    names: HashMap<Box<[u8]>, LabelName>,
    /// Labels of the current resource.
    of_resource: Vec<OuterLabel>,
    /// Labels of the current resource and scope.
    outer: Vec<OuterLabel>,
    /// Encoded labels of the current resource and scope.
    suffix: Vec<u8>,
    plans: Vec<Plan>,
    /// Index of the plan of the previous data point.
    last_plan: usize,
    /// Index of the plan that is replaced next.
    oldest_plan: usize,
    /// Encoded labels of the current data point, without its metric name.
    pub(super) encoded: Vec<u8>,
    /// Texts of values that are not strings.
    texts: Vec<u8>,
}

impl<'s> Labels<'s> {
    pub(super) fn new(settings: &'s OtlpSettings) -> Self {
        Self {
            settings,
            names: HashMap::new(),
            of_resource: Vec::new(),
            outer: Vec::new(),
            suffix: Vec::new(),
            plans: Vec::new(),
            last_plan: 0,
            oldest_plan: 0,
            encoded: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Sets the labels of a resource. Fails if the resource has too many attributes, or if a promoted or identifying
    /// attribute cannot be a label; all points of the resource are then rejected.
    pub(super) fn set_resource(&mut self, attributes: &[Attribute<'_>]) -> Read<Result<(), Reason>> {
        self.of_resource.clear();
        if let Err(reason) = check_count(attributes) {
            return Ok(Err(reason));
        }
        let mut service = Service::default();
        for attribute in attributes {
            let key = attribute.key_text();
            let is_promoted = self.settings.promotes(key);
            if !is_promoted && !Service::has(key) {
                continue;
            }
            let value = match text_of(attribute.value)? {
                Ok(value) => value,
                Err(reason) => return Ok(Err(reason)),
            };
            if is_promoted {
                match self.name(key) {
                    Ok(name) => set(&mut self.of_resource, name, value.clone(), true),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
            service.take(key, value);
        }
        for (name, value) in service.labels() {
            set(&mut self.of_resource, name.to_vec(), value, false);
        }
        Ok(Ok(()))
    }

    /// Sets the labels of a scope, in addition to those of the resource. Fails if the scope has too many attributes, or
    /// if the settings make an attribute of the scope a label and the attribute cannot be a label. All points of the
    /// scope are then rejected.
    pub(super) fn set_scope(
        &mut self,
        name: &[u8],
        version: &[u8],
        schema: &[u8],
        attributes: &[Attribute<'_>],
    ) -> Read<Result<(), Reason>> {
        let mut outer = self.of_resource.clone();
        if let Err(reason) = check_count(attributes) {
            return Ok(Err(reason));
        }
        if self.settings.promote_scope_metadata && !name.is_empty() {
            for attribute in attributes {
                let label = match self.name(&[b"otel_scope_", attribute.key_text()].concat()) {
                    Ok(label) => label,
                    Err(reason) => return Ok(Err(reason)),
                };
                match text_of(attribute.value)? {
                    Ok(value) => set(&mut outer, label, value, false),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
            for (label, value) in [
                ("otel_scope_name", name),
                ("otel_scope_version", version),
                ("otel_scope_schema_url", schema),
            ] {
                set(&mut outer, label.into(), value.into(), false);
            }
        }
        self.set_outer(outer);
        Ok(Ok(()))
    }

    fn set_outer(&mut self, outer: Vec<OuterLabel>) {
        let names = |labels: &[OuterLabel]| -> Vec<Vec<u8>> {
            labels.iter().map(|label| label.name.clone()).collect()
        };
        // A plan depends on the names of the outer labels.
        if names(&outer) != names(&self.outer) {
            self.plans.clear();
            self.last_plan = 0;
        }
        self.outer = outer;
        self.suffix.clear();
        for label in self.outer.iter().filter(|label| !label.value.is_empty()) {
            labels::push(&label.name, &label.value, &mut self.suffix);
        }
    }

    /// Encodes the labels of a data point.
    #[inline]
    pub(super) fn set_point(&mut self, attributes: &[Attribute<'_>]) -> Read<Result<(), Reason>> {
        self.encoded.clear();
        if !self
            .plans
            .get(self.last_plan)
            .is_some_and(|plan| plan.is_of(attributes))
            && let Err(reason) = self.find_plan(attributes)
        {
            return Ok(Err(reason));
        }
        match self.planned(attributes)? {
            Ok(true) => Ok(Ok(())),
            Ok(false) => self.merged(attributes),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Encodes the labels of a data point by the current plan. Returns `false` if that is not possible.
    #[inline]
    fn planned(&mut self, attributes: &[Attribute<'_>]) -> Read<Result<bool, Reason>> {
        let plan = &self.plans[self.last_plan];
        if !plan.is_plain {
            return Ok(Ok(false));
        }
        let mut from = 0;
        for (attribute, (_, end)) in attributes.iter().zip(&plan.ends) {
            let name = &plan.labels[from..*end as usize];
            from = *end as usize;
            match any_value::string(attribute.value) {
                Some(text) if text.len() > 1 => labels::push_spelt(name, text, &mut self.encoded),
                Some(_) => return Ok(Ok(false)),
                None => {
                    self.texts.clear();
                    if let Err(reason) = any_value::push_text(attribute.value, &mut self.texts)? {
                        return Ok(Err(reason));
                    }
                    if self.texts.is_empty() {
                        return Ok(Ok(false));
                    }
                    labels::push_spelt(name, &spelt(&self.texts), &mut self.encoded);
                }
            }
        }
        self.encoded.extend_from_slice(&self.suffix);
        Ok(Ok(true))
    }

    /// Makes the plan of a sequence of attributes the current one; adds it if necessary.
    #[cold]
    fn find_plan(&mut self, attributes: &[Attribute<'_>]) -> Result<(), Reason> {
        check_count(attributes)?;
        let keys: usize = attributes.iter().map(|attribute| attribute.key.len()).sum();
        if keys > KEY_BYTES_MAX {
            return Err(format!("attributes too large: limit {KEY_BYTES_MAX}").into());
        }
        if let Some(known) = self.plans.iter().position(|plan| plan.is_of(attributes)) {
            self.last_plan = known;
            return Ok(());
        }
        let plan = self.plan(attributes);
        if self.plans.len() < PLANS_MAX {
            self.last_plan = self.plans.len();
            self.plans.push(plan);
        } else {
            self.last_plan = self.oldest_plan;
            self.oldest_plan = (self.oldest_plan + 1) % PLANS_MAX;
            self.plans[self.last_plan] = plan;
        }
        Ok(())
    }

    fn plan(&mut self, attributes: &[Attribute<'_>]) -> Plan {
        let mut plan = Plan {
            is_plain: true,
            ..Plan::default()
        };
        let mut seen: Vec<Vec<u8>> = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            plan.keys.extend_from_slice(attribute.key);
            let name = self.name(attribute.key_text()).unwrap_or_default();
            plan.is_plain &= !name.is_empty()
                && name != METRIC_NAME
                && !RESERVED.contains(&&*name)
                && !self.outer.iter().any(|label| label.name == name)
                && !seen.contains(&name);
            plan.labels.extend_from_slice(&spelt(&name));
            plan.ends.push((plan.keys.len() as u32, plan.labels.len() as u32));
            seen.push(name);
        }
        plan
    }

    /// Encodes the labels of a data point that its plan cannot encode. Attributes with the same label are joined with
    /// `;`, in the order of their names. Labels of the resource and scope take precedence over attributes, except for
    /// promoted labels.
    #[cold]
    fn merged(&mut self, attributes: &[Attribute<'_>]) -> Read<Result<(), Reason>> {
        let merged = match self.joined(attributes, |_| true)? {
            Ok(merged) => merged,
            Err(reason) => return Ok(Err(reason)),
        };
        self.encoded.clear();
        self.put(merged, self.outer.clone());
        Ok(Ok(()))
    }

    /// Encodes the labels of attributes together with those of the resource and scope.
    fn put(&mut self, mut merged: LabelMap, outer: Vec<OuterLabel>) {
        for label in outer {
            let has = merged.get(&label.name).is_some_and(|value| !value.is_empty());
            if !(label.is_promoted && has) {
                merged.insert(label.name, label.value);
            }
        }
        for (name, value) in merged.iter().filter(|(_, value)| !value.is_empty()) {
            labels::push(name, value, &mut self.encoded);
        }
    }

    /// Returns the labels of the attributes for which `is_wanted` returns true, without the metric name and reserved
    /// names.
    fn joined(
        &mut self,
        attributes: &[Attribute<'_>],
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Read<Result<LabelMap, Reason>> {
        let mut sorted: Vec<Attribute<'_>> = attributes.to_vec();
        sorted.sort_by_key(Attribute::key_text);
        let mut joined = LabelMap::new();
        for attribute in sorted {
            let key = attribute.key_text();
            if !is_wanted(key) {
                continue;
            }
            let (name, value) = match (self.name(key), text_of(attribute.value)?) {
                (Ok(name), Ok(value)) => (name, value),
                (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
            };
            if name == METRIC_NAME || RESERVED.contains(&&*name) {
                continue;
            }
            let known = joined.entry(name).or_default();
            if !known.is_empty() {
                known.push(b';');
            }
            known.extend_from_slice(&value);
        }
        Ok(Ok(joined))
    }

    /// Encodes the labels of `target_info`: the attributes of a resource, `job` and `instance`. Identifying
    /// attributes are omitted unless a setting keeps them. Returns `false` if the resource has no attributes other
    /// than the identifying ones, or has neither `job` nor `instance`.
    pub(super) fn set_target(&mut self, attributes: &[Attribute<'_>]) -> Read<Result<bool, Reason>> {
        self.encoded.clear();
        let describes = attributes
            .iter()
            .any(|attribute| !Service::has(attribute.key_text()));
        if !describes {
            return Ok(Ok(false));
        }
        let keeps = self.settings.keep_identifying_resource_attributes;
        let merged = match self.joined(attributes, |key| keeps || !Service::has(key))? {
            Ok(merged) => merged,
            Err(reason) => return Ok(Err(reason)),
        };
        let outer: Vec<OuterLabel> = self
            .of_resource
            .iter()
            .filter(|label| !label.is_promoted)
            .cloned()
            .collect();
        let identifies = [&b"job"[..], b"instance"].iter().any(|name| {
            merged.get(*name).is_some_and(|value| !value.is_empty())
                || outer
                    .iter()
                    .any(|label| label.name == *name && !label.value.is_empty())
        });
        if identifies {
            self.put(merged, outer);
        }
        Ok(Ok(identifies))
    }

    /// Returns the label name of an attribute, or the reason why it cannot be a label.
    fn name(&mut self, attribute: &[u8]) -> Result<Vec<u8>, Reason> {
        if let Some(known) = self.names.get(attribute) {
            return known.clone().map(<[u8]>::into_vec);
        }
        let name = label_name::translate(attribute, self.settings).map(String::into_bytes);
        if self.names.len() < NAMES_MAX {
            let kept = name.clone().map(Vec::into_boxed_slice);
            self.names.insert(attribute.into(), kept);
        }
        name
    }
}

/// Attributes that identify a resource.
#[derive(Debug, Default)]
struct Service {
    name: Option<Vec<u8>>,
    namespace: Option<Vec<u8>>,
    instance: Option<Vec<u8>>,
}

impl Service {
    fn has(key: &[u8]) -> bool {
        matches!(
            key,
            b"service.name" | b"service.namespace" | b"service.instance.id"
        )
    }

    fn take(&mut self, key: &[u8], value: Vec<u8>) {
        match key {
            b"service.name" => self.name = Some(value),
            b"service.namespace" => self.namespace = Some(value),
            b"service.instance.id" => self.instance = Some(value),
            _ => {}
        }
    }

    /// Returns the labels `job` and `instance`. `job` is `namespace/name`, or the name alone if there is no namespace.
    /// Labels with an empty value are omitted.
    fn labels(self) -> impl Iterator<Item = (&'static [u8], Vec<u8>)> {
        let job = self.name.map(|name| match self.namespace {
            Some(namespace) => [&*namespace, b"/", &*name].concat(),
            None => name,
        });
        let labels = [(&b"job"[..], job), (&b"instance"[..], self.instance)];
        labels
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?)))
    }
}

/// Sets a label, replacing one of the same name.
fn set(labels: &mut Vec<OuterLabel>, name: Vec<u8>, value: Vec<u8>, is_promoted: bool) {
    labels.retain(|label| label.name != name);
    labels.push(OuterLabel {
        name,
        value,
        is_promoted,
    });
}

fn check_count(attributes: &[Attribute<'_>]) -> Result<(), Reason> {
    match attributes.len() > TAGS_MAX {
        true => Err(format!("too many attributes: limit {TAGS_MAX}").into()),
        false => Ok(()),
    }
}

fn text_of(value: &[u8]) -> Read<Result<Vec<u8>, Reason>> {
    let mut text = Vec::new();
    Ok(any_value::push_text(value, &mut text)?.map(|()| text))
}

/// Returns a text with its encoded length in front.
fn spelt(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    varint::put(text.len() as u64, &mut out);
    out.extend_from_slice(text);
    out
}
