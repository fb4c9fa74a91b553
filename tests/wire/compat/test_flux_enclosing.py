"""Ways to enclosing instances: `flux.Flux("..")`, `flux --parent`, and what a job left in its namespace."""

from __future__ import annotations

from instance import start

SCRIPT = """
import flux
for path in ("/", ".", "./", "..", "../", "./..", "../..", "..//..", "../../../..", ".././../"):
    print(flux.Flux(path).attr_get("instance-level"), end=" ")
for path in ("/.", "//", "../f", "../f/.."):
    try:
        flux.Flux(path)
        print("opened", path)
    except OSError as exc:
        print(exc.errno, end=" ")
"""


def test_a_path_leads_to_an_enclosing_instance() -> None:
    done = start('flux run flux start flux run flux start flux python -c "$SCRIPT"', SCRIPT=SCRIPT)
    assert (done.out.strip(), done.rc) == ("0 2 2 1 1 1 0 0 0 0 22 22 22 22", 0)


def test_a_job_may_leave_values_in_its_own_namespace() -> None:
    inner = "flux --parent kvs put test=ok; flux getattr constrained-resources"
    done = start(
        f"id=$(flux submit flux start '{inner}'); flux job attach $id; flux job info $id guest.test; "
        "flux job info $id guest.none"
    )
    assert done.out == "0\nok\n"
    assert done.err.startswith("flux-job: guest.none: key not found\n")
