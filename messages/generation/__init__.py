"""What is generated and how: messages between gateways and schedulers about sequences, and the parts that they share."""
