"""Queries a server with prometheus-api-client; the first unexpected result ends the script.

Arguments: the address, and the last timestamp of the series `up` and `requests_total`, in seconds. Each series has 120
samples, 15 s apart, for each of two jobs; `requests_total` grows by 3 per sample.
"""

import datetime
import sys

from prometheus_api_client import MetricRangeDataFrame, MetricsList, PrometheusApiClientException, PrometheusConnect

address, end = sys.argv[1], int(sys.argv[2])
last = datetime.datetime.fromtimestamp(end, datetime.timezone.utc)
checks = 0


def check(what, got, wanted):
    global checks
    checks += 1
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, expected {wanted!r}")


for base in (address, address + "/v1/tables/default/prometheus"):
    client = PrometheusConnect(url=base, disable_ssl=True)
    check("connection", client.check_prometheus_connection(), True)
    check("metrics", client.all_metrics(), ["requests_total", "up"])
    check("label names", sorted(client.get_label_names()), ["__name__", "instance", "job"])
    check("label values", client.get_label_values("job"), ["api", "web"])

    now = client.custom_query("sum(up)", params={"time": end})
    check("sum", [(sample["metric"], sample["value"]) for sample in now], [({}, [end, "2"])])
    rates = client.custom_query("rate(requests_total[5m])", params={"time": end})
    rates = sorted((sample["metric"]["job"], round(float(sample["value"][1]), 6)) for sample in rates)
    check("rates", rates, [("api", 0.2), ("web", 0.2)])
    current = client.get_current_metric_value("up", label_config={"job": "api"}, params={"time": end})
    check("current value", [sample["value"][1] for sample in current], ["1"])

    start = last - datetime.timedelta(minutes=10)
    rows = client.custom_query_range("requests_total{job='web'}", start_time=start, end_time=last, step="15")
    check("series", len(rows), 1)
    check("rows", len(rows[0]["values"]), 41)
    check("last row", rows[0]["values"][-1], [end, str(119 * 3)])
    ranges = client.get_metric_range_data("requests_total", start_time=start, end_time=last)
    check("range data", sorted(len(series["values"]) for series in ranges), [40, 40])
    check("frame", len(MetricRangeDataFrame(ranges)), 80)
    check("list", len(MetricsList(ranges)), 2)
    sums = client.get_metric_aggregation(
        "sum(requests_total)", ["max", "min"], start_time=start, end_time=last, step="15"
    )
    check("aggregation", sums, {"max": 2 * 119 * 3.0, "min": 2 * 79 * 3.0})
    try:
        client.custom_query("sum(")
        sys.exit("an invalid expression was not reported as an error")
    except PrometheusApiClientException as error:
        check("mistake", "parse error" in str(error) and "400" in str(error), True)

print(f"{checks} checks passed")
