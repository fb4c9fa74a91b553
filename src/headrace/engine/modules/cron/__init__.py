"""Commands that run at dates, at intervals or after events, as configured by `flux cron`."""
