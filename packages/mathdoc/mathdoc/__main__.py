"""`mathdoc check | build | explain | init`, also as `python -m mathdoc`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mathdoc.check import Report, check, lost_levels, write_baseline, write_records
from mathdoc.explain import explained
from mathdoc.init import begin
from mathdoc.katex import can_render
from mathdoc.problem import MathdocError
from mathdoc.settings import Settings, find_settings, packages_of


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every formula holds, 1 if one does not, 2 if the call itself is wrong."""
    options = _parser().parse_args(arguments)
    try:
        return max((int(options.verb(settings, options)) for settings in _chosen(options)), default=0)
    except MathdocError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def entry() -> None:
    """The command `mathdoc`."""
    sys.exit(main())


def _chosen(options: argparse.Namespace) -> list[Settings]:
    """The packages to act on: the one that was named, those of the files, or the one of the settings."""
    given = {"notation": options.notation, "exercises": options.exercises, "baseline": options.baseline}
    if options.verb is _explain:
        packages = packages_of([_place(options.place)[0]])
        return [find_settings(str(packages[0]) if packages else None, **given)]
    if options.files is not None:
        return [find_settings(str(package), **given) for package in packages_of(options.files)]
    return [find_settings(options.package, **given)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("mathdoc", description="Formulas beside the code, and checked.")
    verbs = parser.add_subparsers(required=True, metavar="check | build | explain | init")
    checking = verbs.add_parser("check", help="check every `# LaTeX:` marker of a package against its line")
    building = verbs.add_parser("build", help="write the package's pages as Markdown")
    explaining = verbs.add_parser("explain", help="show how a formula was read and the values of its symbols")
    starting = verbs.add_parser("init", help="write settings, notation tables and exercises, guessed from the code")
    checking.set_defaults(verb=_check)
    building.set_defaults(verb=_build)
    explaining.set_defaults(verb=_explain, package=None)
    starting.set_defaults(verb=_init)
    explaining.add_argument("place", metavar="FILE:LINE", help="line of a marker or of its statement")
    starting.add_argument("package", metavar="PACKAGE", help="folder or import name")
    for verb in (checking, building, explaining, starting):
        verb.set_defaults(notation=None, exercises=None, baseline=None, files=None)
    for verb in (checking, building):
        count = "?" if verb is checking else None
        verb.add_argument("package", nargs=count, metavar="PACKAGE", help="folder or import name")
        verb.add_argument("--notation", type=Path, help="folder of the notation tables")
        verb.add_argument("--exercises", type=Path, help="file with run(dtype, seed)")
        verb.add_argument("--baseline", type=Path, help="file with the level each formula has reached")
    checking.add_argument("--files", type=Path, nargs="*", help="check the packages that these files belong to")
    checking.add_argument("--json", type=Path, help="write what was found about each formula here")
    checking.add_argument("--strict", action="store_true", help="fail also on what the check could not see")
    checking.add_argument("--update-baseline", action="store_true", help="take over the levels of this run")
    building.add_argument("out", metavar="OUT", type=Path)
    building.add_argument("--no-check", action="store_true", help="leave out level 3: pages come without badges")
    building.add_argument("--rendered", action="store_true", help="formulas as HTML and MathML instead of $$ blocks")
    building.add_argument("--pages", type=Path, help="folder of hand-written pages to add")
    building.add_argument("--source-url", default="", help="where files can be read: {path} and {line} are filled in")
    return parser


def _check(settings: Settings, options: argparse.Namespace) -> int:
    report = check(settings)
    if options.json:
        write_records(report, options.json)
    for problem in [*report.problems, *(report.blind if options.strict else [])]:
        print(problem, end="\n\n")
    for line in report.excused if options.strict else ():
        print(f"excused: {line}")
    lost = [] if options.update_baseline else lost_levels(report)
    for line in lost:
        print(f"level lost: {line}. If that is meant: mathdoc check --update-baseline", file=sys.stderr)
    if options.update_baseline and not report.problems:
        write_baseline(report)
    print(summary(report))
    return 1 if report.problems or lost or (options.strict and report.blind) else 0


def _build(settings: Settings, options: argparse.Namespace) -> int:
    if not can_render():
        raise MathdocError('Pages need the extra site: pip install "mathdoc[site]"')
    from mathdoc.pages.build import build  # needs that extra, which the check does not

    report = check(settings, truth=not options.no_check)
    for problem in report.problems:
        print(problem, end="\n\n")
    build(report, options.out, rendered=options.rendered, source_url=options.source_url, pages=options.pages)
    print(summary(report))
    return 1 if report.problems else 0


def _explain(settings: Settings, options: argparse.Namespace) -> int:
    text, holds = explained(settings, *_place(options.place))
    print(text)
    return 0 if holds else 1


def _place(text: str) -> tuple[Path, int]:
    """The file and the line of `FILE:LINE`."""
    name, _, line = text.rpartition(":")
    if not line.isdecimal() or not Path(name).is_file():
        raise MathdocError(f"{text} is no FILE:LINE of a file that is there, such as mypackage/model.py:12.")
    return Path(name), int(line)


def _init(settings: Settings, options: argparse.Namespace) -> int:
    for line in begin(settings):
        print(line)
    return 0


def summary(report: Report) -> str:
    """How many formulas hold, module by module and in all."""
    lines = []
    for source in report.sources:
        found = report.of(source.module)
        if found:
            held = sum(verdict.status in ("verified", "slack") for verdict in found)
            killed = sum(verdict.rejected for verdict in found)
            lines.append(f"  {source.module:32} {held:3} of {len(found):3} hold, {killed:4} mutants rejected")
    total = len(report.verdicts)
    held, slack, prose = (report.count(status) for status in ("verified", "slack", "prose"))
    mutants = sum(verdict.mutants for verdict in report.verdicts)
    rejected = sum(verdict.rejected for verdict in report.verdicts)
    share = f"{100 * (held + slack) / total:.1f} %" if total else "none"
    lines.append(
        f"{total} formulas: {held} verified, {slack} with stated slack, {prose} prose ({share} hold); "
        f"{rejected} of {mutants} mutants rejected; {len(report.problems)} problems; "
        f"{len(report.blind)} not seen, {len(report.excused)} excused; {report.seconds:.1f} s"
    )
    if not can_render():
        lines.append('Whether KaTeX accepts the formulas was not checked: pip install "mathdoc[site]"')
    return "\n".join(lines)


if __name__ == "__main__":
    entry()
