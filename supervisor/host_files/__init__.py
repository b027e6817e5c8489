"""Files for operators: units, rules, dashboards, compose files."""
