"""First tokens of urgent requests, idle and beside many others"""
