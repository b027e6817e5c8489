"""What users of other servers bring along besides flags: variables of the environment, and commands of a chat."""
