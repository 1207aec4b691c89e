"""Writes, searches and queries with the client that openapi-python-client generates from openapi.json."""

import sys

from client import Client
from client.api.points import query, write_points
from client.api.timelines import search
from client.models import PointAnswer, PointQuery, PointsBody, TimelineList, TimelineSearch, WriteReport

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)

points = [
    {"measurement": "room", "tags": {"host": host}, "time": "2026-11-20T12:00:00Z", "fields": {"temperature": value}}
    for host, value in [("attic", 21.5), ("cellar", 12.25)]
]
report = write_points.sync("default", client=client, body=PointsBody.from_dict({"points": points}))
assert isinstance(report, WriteReport), report
assert report.points == 2 and report.rejected == 0, report

condition = {"and": [{"property": "measurement", "equals": "room"}, {"tag": "host", "prefix": "at"}]}
found = search.sync("default", client=client, body=TimelineSearch.from_dict({"where": condition}))
assert isinstance(found, TimelineList), found
assert found.total == 1, found
assert found.timelines[0].tags.to_dict() == {"host": "attic"}, found

question = {
    "fields": ["temperature"],
    "range": {"start": "2026-11-20T12:00:00Z", "end": "2026-11-20T13:00:00Z"},
    "aggregate": {"functions": ["mean", {"percentile": 50}], "window": "1h", "group_by": ["host"]},
}
answer = query.sync("default", client=client, body=PointQuery.from_dict(question))
assert isinstance(answer, PointAnswer), answer
rows = [(series.tags.to_dict(), series.points) for series in answer.series]
assert rows == [
    ({"host": "attic"}, [["2026-11-20T12:00:00Z", 21.5, 21.5]]),
    ({"host": "cellar"}, [["2026-11-20T12:00:00Z", 12.25, 12.25]]),
], rows

refused = query.sync("default", client=client, body=PointQuery.from_dict({"fields": ["nothing"]}))
assert refused.code == "invalid" and not refused.retryable, refused
print("writes, finds, queries and reads errors")
