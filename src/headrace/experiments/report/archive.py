"""Completes the folder of an experiment, so that it can be read and archived as it is."""

from __future__ import annotations

from pathlib import Path

from headrace.experiments.report.crate import write_crate
from headrace.experiments.report.flux_cloud import write_flux_cloud
from headrace.experiments.report.page import report_page
from headrace.experiments.report.study import read
from headrace.experiments.store.folder import REPORT, FolderError, write_file


def complete(path: str, *, flux_cloud: bool = False) -> Path:
    """Write `report.html`, `ro-crate-metadata.json` and, if wanted, flux-cloud's tree; returns the path of the report.

    They replace those of an earlier call. Raises FolderError.
    """
    study = read(path)
    summary = study.summary()
    report = study.folder.path / REPORT
    try:
        write_file(report, report_page(study, summary).encode())
    except OSError as exc:
        raise FolderError(f"{exc.filename}: {exc.strerror}") from None
    if flux_cloud:
        write_flux_cloud(study)
    write_crate(study, summary)
    return report
