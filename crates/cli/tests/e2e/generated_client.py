"""A generated client against a hub: every answer is read into the types that the document promises.

Words: where the client was generated, the hub's address, an administrator's token.
"""

import sys

sys.path.insert(0, sys.argv[1])

from hubclient.api.access import add_rule, list_rules, list_tokens, new_token, remove_rule, remove_token, show_session
from hubclient.api.endpoints import list_endpoints
from hubclient.api.jobs import change_job, list_failures, list_jobs, remove_job, show_job, steer_job, submit_job, summary
from hubclient.client import AuthenticatedClient
from hubclient.models import Change, Job, JobFile, NewRule, NewToken, Problem, Scope, SteerJobVerb

client = AuthenticatedClient(base_url=sys.argv[2], token=sys.argv[3])


def submit(**more):
    answer = submit_job.sync(client=client, body=JobFile(source="sitea:x/", destination="siteb:y/", **more))
    assert answer.is_new, answer
    return answer.id


first = submit(rate="1K")
job = show_job.sync(first, client=client)
assert isinstance(job, Job) and job.owner == "token:boss" and job.job.rate == "1K", job
changed = change_job.sync(first, client=client, body=Change(rate=None, priority=3), if_match=str(job.version + 1000))
assert isinstance(changed, Problem) and changed.status == 412, changed
changed = change_job.sync(first, client=client, body=Change(rate="2K", priority=3))
assert isinstance(changed, Job) and changed.job.priority == 3, changed
stopped = steer_job.sync(first, SteerJobVerb.CANCEL, client=client)
assert isinstance(stopped, Job), stopped
assert isinstance(show_job.sync("0" * 32, client=client), Problem)

others = [submit_job.sync(client=client, body=JobFile(source=f"sitea:{n}", destination=f"siteb:z{n}/")).id for n in range(25)]
found, after = [], None
while True:
    page = list_jobs.sync(client=client, limit=10, **({} if after is None else {"after": after}))
    found += [job.id for job in page.jobs]
    after = page.next_
    if after is None:
        break
assert sorted(found) == sorted([first, *others]), (len(found), len(others))

while not isinstance((job := show_job.sync(others[0], client=client)).code, int):
    pass
assert job.status == "failed" and job.hint, job
assert list_failures.sync(others[0], client=client) is not None
assert remove_job.sync_detailed(others[0], client=client).status_code == 204
assert {endpoint.name for endpoint in list_endpoints.sync(client=client)} == {"sitea", "siteb"}
assert summary.sync(client=client).pin
assert show_session.sync(client=client).is_admin

made = new_token.sync(client=client, body=NewToken(name="guest", scopes=[Scope.READ], seconds=60))
assert made.principal == "token:guest"
rule = add_rule.sync(client=client, body=NewRule(rule="allow token:guest read sitea:x"))
assert [known.rule for known in list_rules.sync(client=client)] == [rule.rule]
assert remove_rule.sync(rule.id, client=client).cancelled == 0
assert {token.name for token in list_tokens.sync(client=client)} == {"boss", "guest"}
refused = list_tokens.sync(client=AuthenticatedClient(base_url=sys.argv[2], token=made.token))
assert isinstance(refused, Problem) and refused.status == 403 and refused.code == 6, refused
assert remove_token.sync("guest", client=client).cancelled == 0
print("all of it")
