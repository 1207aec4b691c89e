"""Exports metrics with opentelemetry-sdk, and reads them with PromQL; the first unexpected result ends the script.

Argument: the address of a server.
"""

import json
import sys
import time
import urllib.parse
import urllib.request

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

address = sys.argv[1]
checks = 0


def check(what, got, wanted):
    global checks
    checks += 1
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, expected {wanted!r}")


def ask(base, path, **parameters):
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{base}{path}?{query}") as answer:
        return json.load(answer)["data"]


def values(base, expression):
    """Returns the labels without the job, and the value, of each series."""
    series = ask(base, "/api/v1/query", query=expression)["result"]
    own = [({k: v for k, v in one["metric"].items() if k != "__name__"}, one["value"][1]) for one in series]
    return sorted(own, key=repr)


class Recorder:
    """Exporter that keeps the results of another exporter."""

    def __init__(self, exporter):
        self.exporter = exporter
        self.results = []
        export = exporter.export

        def recorded(*arguments, **named):
            result = export(*arguments, **named)
            self.results.append(result)
            return result

        exporter.export = recorded


def provider(exporter):
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    resource = Resource.create(
        {"service.namespace": "demo", "service.name": "shop", "service.instance.id": "i-1", "service.version": "2.1"}
    )
    views = [View(instrument_name="payload", aggregation=ExponentialBucketHistogramAggregation())]
    return MeterProvider(metric_readers=[reader], resource=resource, views=views)


for compression, path, base in [
    (Compression.NoCompression, "/v1/metrics", address),
    (Compression.Gzip, "/api/v1/otlp/v1/metrics", address),
    (Compression.Deflate, "/v1/tables/second/prometheus/v1/metrics", address + "/v1/tables/second/prometheus"),
]:
    recorder = Recorder(OTLPMetricExporter(endpoint=address + path, compression=compression))
    meters = provider(recorder.exporter)
    meter = meters.get_meter("shop.meter", "1.0")
    name = compression.name.lower()
    meter.create_counter(f"{name}.orders", unit="1", description="Orders.").add(3, {"http.method": "GET"})
    meter.create_up_down_counter(f"{name}.queue").add(-2)
    meter.create_observable_gauge(f"{name}.load", unit="1", callbacks=[lambda _: [Observation(0.5)]])
    latency = meter.create_histogram(f"{name}.latency", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1.0])
    payload = meter.create_histogram("payload", unit="By")
    for value in (0.05, 0.5, 5):
        latency.record(value)
        payload.record(value)
    check("flush", meters.force_flush(), True)
    check("exports", recorder.results, [MetricExportResult.SUCCESS])

    target = {"instance": "i-1", "job": "demo/shop"}
    check("counter", values(base, f"{name}_orders_total"), [({**target, "http_method": "GET"}, "3")])
    check("sum", values(base, f"{name}_queue"), [(target, "-2")])
    check("gauge", values(base, f"{name}_load_ratio"), [(target, "0.5")])
    buckets = [({**target, "le": le}, count) for le, count in [("+Inf", "3"), ("0.1", "1"), ("1", "2")]]
    check("buckets", values(base, f"{name}_latency_seconds_bucket"), buckets)
    check("sum of observations", values(base, f"{name}_latency_seconds_sum"), [(target, "5.55")])
    check("native count", values(base, "histogram_count(payload_bytes)"), [(target, "3")])
    check("native sum", values(base, "histogram_sum(payload_bytes)"), [(target, "5.55")])
    info = ask(base, "/api/v1/query", query="target_info")["result"][0]["metric"]
    check("target", (info["service_version"], info["telemetry_sdk_language"]), ("2.1", "python"))
    metadata = ask(base, "/api/v1/metadata")[f"{name}_orders_total"]
    check("metadata", metadata, [{"type": "counter", "help": "Orders.", "unit": ""}])
    meters.shutdown()

# Points with delta temporality are refused, and a refusal is not repeated.
delta = {kind: AggregationTemporality.DELTA for kind in (Counter, Histogram)}
recorder = Recorder(OTLPMetricExporter(endpoint=address + "/v1/metrics", preferred_temporality=delta))
meters = provider(recorder.exporter)
meters.get_meter("delta").create_counter("increments").add(1)
begun = time.monotonic()
meters.force_flush()
check("refused exports", recorder.results, [MetricExportResult.FAILURE])
check("no repetition", time.monotonic() - begun < 1, True)
check("nothing stored", values(address, "increments_total"), [])
meters.shutdown()

print(f"{checks} checks passed")
