"""Submission directives: the examples and rules of RFC 36."""

from typing import List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec import directives
from headrace.formats.spec.directives import DirectiveError


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("#!/bin/sh\necho hi\n", []),
        (
            "#!/bin/sh\n"
            "#FLUX: -N4                  # Request four nodes\n"
            "#FLUX: --queue=batch        # Submit to the batch queue\n"
            "#FLUX: --job-name=app001    # Set an explicit job name\n"
            "flux run -N4 app\n",
            ["-N4", "--queue=batch", "--job-name=app001"],
        ),
        (
            "#!/usr/bin/env python3\n"
            "def main():\n"
            '    """\n'
            "    flux: -N4\n"
            "    flux: --queue=batch\n"
            '    flux: --job-name="my python job"\n'
            "\n"
            "    # Set some arbitrary user data:\n"
            "    flux: --setattr=user.data='''\n"
            "    flux: x, y, z\n"
            "    flux: a, b, c\n"
            "    flux: '''\n"
            '    """\n'
            "    run()\n",
            ["-N4", "--queue=batch", "--job-name=my python job", "--setattr=user.data=x, y, z\na, b, c\n"],
        ),
        (
            "#!/usr/bin/lua\n--\n-- flux: -N1 --exclusive\n-- flux: --output=job.out\n"
            "local app = require 'app'\napp.run()\n",
            ["-N1", "--exclusive", "--output=job.out"],
        ),
        (
            "#!/bin/sh\n# Set flux directives\n#FLUX: -N1\n# Set job name:\n#FLUX: --job-name=test\nhostname; date\n",
            ["-N1", "--job-name=test"],
        ),
        (
            '#!/usr/bin/env python3\n"""\nflux: --nodes=4\n\nSet an arbitrary value in jobspec:\n'
            'flux: --setattr=user.foo="hello, earth"\n"""\n',
            ["--nodes=4", "--setattr=user.foo=hello, earth"],
        ),
        ('# flux: --setattr=user.data=\'{"option": "arg"}\'\n', ['--setattr=user.data={"option": "arg"}']),
        ("# flux: --job-name='''It's a \"job\"'''\n", ['--job-name=It\'s a "job"']),
        ('# flux: --setattr=user.foo="""{"key": 42}"""\n', ['--setattr=user.foo={"key": 42}']),
        (
            '# flux: --setattr=user.conf="""\n# flux: [config]\n# flux:   item = "foo"\n# flux: """\n',
            ['--setattr=user.conf=[config]\n  item = "foo"\n'],
        ),
        ("# flux: -N4 # -c2 : comment out for now\n", ["-N4"]),
        ("# flux: --a=b\\ c \"d\\\"e\" 'f\\g' x#y ''\n", ["--a=b c", 'd"e', "f\\g", "x#y", ""]),
        ("# flux:\n#\n# flux: -n1\n", ["-n1"]),
    ],
)
def test_options_of_scripts(script: str, options: List[str]) -> None:
    assert directives.options(script) == options


def test_parse_gives_the_line_of_each_directive() -> None:
    found = directives.parse("#!/bin/sh\n\n# flux: -N1\n# flux: -n2\n")
    assert [(directive.line, directive.args) for directive in found] == [(3, ["-N1"]), (4, ["-n2"])]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\n#FLUX: -N1\nhostname; date\n#FLUX: --job-name=test\n", "line 4: orphan 'flux:' detected"),
        ("# flux: -N1\n# FLUX: -n1\n", "line 2: sentinel changed from '# flux:' to '# FLUX:'"),
        ("# flux: 'x\n", "line 1: No closing quotation"),
        ('# flux: "x\n', "line 1: No closing quotation"),
        ("# flux: '''\n# flux: x\n", "line 1: No closing quotation"),
        ("# flux: '''x\n# flux: '''\n", "line 1: text after an opening '''"),
        ("# flux: '''\nx\n# flux: '''\n", "line 2: must start with '# flux:'"),
        ("# flux: '''\n# flux: ''' -n1\n", "line 2: the closing ''' must be at the end"),
        ("# flux: x\\\n", "nothing follows the backslash"),
    ],
)
def test_errors_have_the_line(script: str, message: str) -> None:
    with pytest.raises(DirectiveError, match=message):
        directives.parse(script)


def test_a_directive_that_is_no_option_is_refused() -> None:
    with pytest.raises(DirectiveError, match="line 1: unknown directive 'SETARGS'"):
        directives.options("# flux: SETARGS -n1\n")


_line = st.tuples(st.sampled_from(["# flux:", "#flux:", "# ", "", "x"]), st.text(alphabet="-a '\"\\#=\t", max_size=10))


@given(st.lists(_line.map("".join), max_size=6))
@settings(max_examples=200)
def test_any_script_has_directives_or_an_error(lines: List[str]) -> None:
    try:
        found = directives.parse("\n".join(lines))
    except DirectiveError:
        return
    assert all(directive.args for directive in found)


@given(st.text(max_size=60))
def test_any_text_has_directives_or_an_error(text: str) -> None:
    try:
        directives.parse("# flux: " + text)
    except DirectiveError:
        return
